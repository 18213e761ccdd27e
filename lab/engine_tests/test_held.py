# SPDX-License-Identifier: GPL-2.0-only
"""Who holds pages, so that they cannot be merged, keeps no others from merging."""

import mmap
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from nuksmlab import stress
from nuksmlab.area import equal_to, held_by_a_pipe, mmap_lock_by_turns, offered
from nuksmlab.fuzz import model
from nuksmlab.ksm import FAST, Ksm, process_stat
from nuksmlab.processes import merged_kib
from nuksmlab.tenant import Spec, StartTenant, Tenant, lend

# Where more than these may have a page, that is not split.
MOST_AREAS = 4096
# Room for a huge page, and what it has of others.
HUGE_MIB, HUGE_PAGES = 4, 512
VICTIM_MIB, VAIN_SCANS = 16, 100
# Of those that are let go of; microseconds.
VAIN_PAGES, VAIN_ROUNDS, VAIN_WIDTH = 16, 100, 20_000


def find_each_other(ksm: Ksm, tenants: Sequence[Tenant]) -> None:
    """All that they share is merged after a few scans."""
    ksm.set_speed(FAST)
    ksm.start()
    ksm.wait_scans(4)
    for tenant in tenants:
        merged = process_stat(tenant.pid)["ksm_merging_pages"]
        assert merged == tenant.equal_pages


# Without placement who is scanned is tried first, and copied in vain each time: a page
# that waits on a CPU's list then, the last few of a tenant's, is not merged.
@pytest.mark.needs(nodes=2)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_who_holds_pages_does_not_keep_others_from_merging(
    ksm: Ksm, start: StartTenant, tmp_path: Path, place: int
) -> None:
    """Wherever in the order of scanning."""
    tenants = [start(f"vm-{number}", number % 2, mib=1) for number in range(3)]
    holder = tenants.pop(place)
    pipe = lend(holder, tmp_path / "pipe")
    try:
        find_each_other(ksm, tenants)
        assert process_stat(holder.pid)["ksm_merging_pages"] == 0
    finally:
        os.close(pipe)


@pytest.mark.parametrize("place", [0, 1])
def test_who_is_equal_to_held_pages_has_his_own_until_they_are_given_back(
    ksm: Ksm, start: StartTenant, tmp_path: Path, place: int
) -> None:
    """What was merged in vain is as it was: others can move it, or merge it."""
    tenants = [start(f"vm-{number}", mib=1) for number in range(2)]
    holder, equal = tenants[place], tenants[1 - place]
    pipe = lend(holder, tmp_path / "pipe")
    try:
        for _ in range(4):
            ksm.scan_once()
        assert ksm.merged() == 0
        assert merged_kib(equal.pid) == 0
    finally:
        os.close(pipe)
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    model.check_intact(tenants)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("index", ["checksum", "content"])
def test_who_has_a_huge_page_that_is_not_split_does_not_keep_others_from_merging(
    ksm: Ksm, start: StartTenant, index: str, place: int
) -> None:
    """There are too many areas in which that could be mapped."""
    ksm.write_text("index", index)
    tenants = [start(f"vm-{number}", mib=HUGE_MIB) for number in range(3)]
    holder = tenants.pop(place)
    holder.command(f"stack {MOST_AREAS + 1}")
    if not holder.command("split collapse")["huge"]:
        pytest.skip("this kernel has no huge pages")
    find_each_other(ksm, tenants)
    # Where pages are to be moved, it is too dear to find, too
    merged = process_stat(holder.pid)["ksm_merging_pages"]
    assert merged <= holder.equal_pages - HUGE_PAGES
    ksm.stop()
    model.check_intact([holder, *tenants])


@pytest.mark.windows
def test_what_is_merged_in_vain_is_filed_once(ksm: Ksm) -> None:
    """Its process lets go of it just then; who had the other page holds that again."""
    half = VAIN_PAGES * mmap.PAGESIZE
    contents = os.urandom(half) * 2
    area = offered(contents)
    windows, faults = stress.Windows(), stress.Faults()
    chance = random.Random(VAIN_PAGES)
    ksm.merge(2 * VAIN_PAGES)  # and ksmd has what it keeps of them
    ksm.set_speed(FAST)
    windows.open({"choose": VAIN_WIDTH, "instead": VAIN_WIDTH})
    faults.refuse_pages()
    try:
        for _ in range(VAIN_ROUNDS):
            area.madvise(mmap.MADV_DONTNEED)
            area[:] = contents
            ksm.wait_scans(chance.randrange(3))
            time.sleep(chance.uniform(0, VAIN_WIDTH) / 1e6)
            with held_by_a_pipe(area, VAIN_PAGES):
                time.sleep(chance.uniform(0, VAIN_WIDTH) / 1e6)
                area.madvise(mmap.MADV_DONTNEED, half, half)
                time.sleep(chance.uniform(0, VAIN_WIDTH) / 1e6)
    finally:
        faults.switch(on=False)
        windows.close()
    area[half:] = contents[half:]
    ksm.wait_scans(2)
    ksm.stop()
    model.check_audit()
    assert area[:] == contents
    area.close()


@pytest.mark.slow
@pytest.mark.needs(nodes=2)
def test_what_is_merged_in_vain_ends_nobody(ksm: Ksm) -> None:
    """Its cgroup has no room for a copy, and nothing that could be reclaimed."""
    stress.account_memory()
    cgroup = stress.Cgroup("full")
    try:
        with Tenant(Spec("victim", 0, VICTIM_MIB), cgroup.prefix()) as victim:
            area = equal_to(victim)
            cgroup.settle()
            cgroup.leave(0)
            with mmap_lock_by_turns():
                ksm.set_speed(FAST)
                for _ in range(VAIN_SCANS):
                    ksm.start()
                    ksm.wait_scans(1)
                    ksm.stop()
                    assert cgroup.oom_kills() == 0
                    # All of it is filed: it can be moved, and reclaimed
                    filed = process_stat(victim.pid)["ksm_merging_pages"]
                    assert merged_kib(victim.pid) == filed * mmap.PAGESIZE >> 10
            cgroup.limit(None)
            ksm.merge(2 * victim.equal_pages)
            model.check_intact([victim])
            area.close()
    finally:
        cgroup.end()
