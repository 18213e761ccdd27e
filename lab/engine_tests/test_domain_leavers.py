# SPDX-License-Identifier: GPL-2.0-only
"""Who goes to another domain with pages that ksmd finds half-way, or never comes to."""

import mmap
import os
import signal
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nuksmlab import domains, numa, stress, wait
from nuksmlab.area import address_of
from nuksmlab.domains import Group, group
from nuksmlab.fuzz import model
from nuksmlab.ksm import FAST, Ksm, process_stat
from nuksmlab.processes import merged_kib
from nuksmlab.puppet import fork_and_wait, puppet

PAGES = 64
FIRST, SECOND = 1, 1001  # of contents, one after the other
SCANS = 4
FILLER = 16 << 20  # bytes
FORKS = 150

pytestmark = pytest.mark.skipif(
    not domains.exist() or not Path("/sys/devices/system/node").exists(),
    reason="this kernel has no merge domains, or no nodes",
)


def contents(first: int) -> bytes:
    """A page for each number from the first on."""
    numbers = range(first, first + PAGES)
    return b"".join(struct.pack("Q", n) * (mmap.PAGESIZE // 8) for n in numbers)


def area_of(first: int, mergeable: bool = True) -> mmap.mmap:
    area = mmap.mmap(-1, PAGES * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE)
    area.madvise(mmap.MADV_NOHUGEPAGE)
    if mergeable:
        area.madvise(mmap.MADV_MERGEABLE)
    area.write(contents(first))
    return area


def frames(pid: int, area: mmap.mmap) -> set[int]:
    return set(model.frames(pid, address_of(area), PAGES))


@pytest.mark.windows  # the kernel that has them tells which item is in which tree
def test_what_is_filed_is_out_of_the_trees_when_its_process_has_left(
    ksm: Ksm, stranger: Group
) -> None:
    """Though its page was merged, for a child, and its cgroup cannot pay for copies."""
    kept: list[mmap.mmap] = []

    def rewrite() -> int:
        kept[0][:] = contents(SECOND)
        return fork_and_wait()

    with ExitStack() as stack:
        leaver = stack.enter_context(
            puppet(lambda: kept.append(area_of(FIRST)), rewrite)
        )
        leaver.next()
        mine = area_of(SECOND)
        for _ in range(SCANS):
            ksm.scan_once()
        relative = int(leaver.next())
        stack.callback(os.kill, relative, signal.SIGKILL)
        ksm.scan_once()
        assert process_stat(relative)["ksm_merging_pages"] == PAGES
        assert process_stat(leaver.pid)["ksm_merging_pages"] == 0
        stress.put(stranger.path / "memory.swap.max", 0)
        stress.put(stranger.path / "memory.max", 0)
        stress.put(Path(f"/proc/{leaver.pid}/oom_score_adj"), -1000)
        stranger.take(leaver.pid)
        ksm.scan_once()
        assert domains.left_by(leaver.pid) == domains.SHARED
        assert model.AUDIT.exists()
        model.check_audit()
        stranger.limit(None)
        for _ in "12":
            ksm.scan_once()
        assert domains.left_by(leaver.pid) is None
        model.check_audit()
    assert mine[:] == contents(SECOND)


def test_no_page_is_merged_that_a_relative_has_where_ksmd_never_comes(
    ksm: Ksm, stranger: Group
) -> None:
    """It would keep the page when it goes to another domain."""
    theirs = area_of(FIRST, mergeable=False)
    wanted = theirs[:]

    def offer() -> None:
        theirs.madvise(mmap.MADV_MERGEABLE)

    other: list[mmap.mmap] = []
    with (
        puppet(lambda: other.append(area_of(FIRST))) as equal,
        puppet(offer) as relative,
    ):
        equal.next()
        for _ in "12":
            ksm.scan_once()
        relative.next()
        for _ in range(SCANS):
            ksm.scan_once()
        mine = area_of(FIRST)
        for _ in range(SCANS):
            ksm.scan_once()
        assert process_stat(os.getpid())["ksm_merging_pages"] == PAGES
        assert not frames(os.getpid(), mine) & frames(os.getpid(), theirs)
        stranger.take(relative.pid)
        for _ in "12":
            ksm.scan_once()
        assert domains.left_by(relative.pid) is None
        assert not frames(os.getpid(), mine) & frames(relative.pid, theirs)
    assert theirs[:] == wanted and mine[:] == wanted


@pytest.mark.needs(nodes=2)
@pytest.mark.parametrize("placement", ["first", "fair"])
def test_pages_that_may_not_be_merged_keep_no_others_apart(
    ksm: Ksm, stranger: Group, placement: str
) -> None:
    """As a relative does not offer them; wherever they belong. They may give way."""
    assert stranger.given() == "5"
    ksm.write_text("placement", placement)
    kept: list[mmap.mmap] = []

    def offer() -> None:
        with numa.running_on(1):
            kept.append(area_of(FIRST))

    with puppet(offer) as one, puppet(offer) as other:
        with numa.running_on(0):
            mine = area_of(FIRST)
        with puppet(lambda: mine.madvise(mmap.MADV_UNMERGEABLE)) as relative:
            relative.next()
            for _ in range(SCANS):
                ksm.scan_once()
            one.next()
            other.next()
            for _ in range(SCANS):
                ksm.scan_once()
            for pid in (os.getpid(), one.pid, other.pid):
                assert process_stat(pid)["ksm_merging_pages"] == PAGES
            assert merged_kib(relative.pid) == 0
    assert mine[:] == contents(FIRST)


def ooms(cgroup: Group) -> int:
    """How often it, or one below it, could not go on without ending a process."""
    events = (cgroup.path / "memory.events").read_text().split()
    return int(events[events.index("oom") + 1])


@pytest.mark.parametrize("cgroups", [1, 2])
def test_nobody_is_ended_as_there_is_no_memory_for_who_leaves(
    ksm: Ksm, stranger: Group, cgroups: int
) -> None:
    """Nor does ksmd wait until somebody is: a tenant can make many full cgroups."""
    stranger.divide()
    with ExitStack() as stack:
        parts = [
            stack.enter_context(group(f"part-{number}", stranger))
            for number in range(cgroups)
        ]
        mine = area_of(FIRST)
        leavers = [stack.enter_context(puppet()) for _ in range(8)]
        equal = area_of(FIRST)
        ksm.merge(PAGES * (2 + len(leavers)))
        ksm.rest()
        stress.put(stranger.path / "memory.swap.max", 0)
        stress.put(stranger.path / "memory.max", 0)
        for number, leaver in enumerate(leavers):
            parts[number % cgroups].take(leaver.pid)
        before = ooms(stranger)
        for _ in "12":
            ksm.scan_once()
        assert all(domains.left_by(leaver.pid) is not None for leaver in leavers)
        assert ooms(stranger) == before
        stranger.limit(None)
        for _ in "12":
            ksm.scan_once()
        assert all(domains.left_by(leaver.pid) is None for leaver in leavers)
        assert equal[:] == mine[:] == contents(FIRST)


@pytest.mark.usefixtures("swap")
def test_who_leaves_for_a_full_cgroup_gets_room_there(
    ksm: Ksm, stranger: Group
) -> None:
    """What it has in memory there can be paged out."""
    kept: list[bytearray] = []
    mine = area_of(FIRST)
    with puppet(lambda: kept.append(bytearray(b"1") * FILLER)) as leaver:
        equal = area_of(FIRST)
        ksm.merge(PAGES * 3)
        ksm.rest()
        stranger.take(leaver.pid)
        leaver.next()
        stranger.leave(0)
        ksm.scan_once()
        assert domains.left_by(leaver.pid) is not None

        def has_left() -> bool:
            ksm.scan_once()
            return domains.left_by(leaver.pid) is None

        wait.until(has_left, lambda: f"leaving; {ksm.counters()}")
        stranger.limit(None)
    assert equal[:] == mine[:] == contents(FIRST)


def test_pages_of_many_forks_are_merged_with_equal_ones(
    ksm: Ksm, stranger: Group
) -> None:
    """Though others have domains, and it takes long to ask who maps a page."""
    assert stranger.given() == "5"
    kept: list[mmap.mmap] = []
    with ExitStack() as stack:
        equal = stack.enter_context(puppet(lambda: kept.append(area_of(FIRST))))
        equal.next()
        for _ in "12":
            ksm.scan_once()
        mine = area_of(FIRST)
        for _ in range(FORKS):
            stack.enter_context(puppet())
        ksm.merge((FORKS + 2) * PAGES)
        assert ksm.read("pages_sharing") == (FORKS + 1) * PAGES
        assert mine[:] == contents(FIRST)


@pytest.fixture
def slow_asker() -> Iterator[None]:
    """ksmd lingers between asking who has a page and merging it."""
    windows = stress.Windows()
    windows.open({"outsiders": 20_000})
    yield
    windows.close()


@pytest.mark.windows
@pytest.mark.usefixtures("slow_asker")
@pytest.mark.parametrize("turn", range(4))
def test_no_page_is_merged_that_a_relative_stops_offering_meanwhile(
    ksm: Ksm, stranger: Group, turn: int
) -> None:
    """Between ksmd's asking, and its merging the page."""
    assert stranger.given() == "5"
    first = FIRST + turn * PAGES
    kept: list[mmap.mmap] = []
    with ExitStack() as stack:
        equal = stack.enter_context(puppet(lambda: kept.append(area_of(first))))
        equal.next()
        mine = area_of(first)
        relative = stack.enter_context(
            puppet(lambda: mine.madvise(mmap.MADV_UNMERGEABLE))
        )
        ksm.set_speed(FAST)
        ksm.start()
        wait.until(lambda: ksm.read("pages_shared") > 0, lambda: "no merging")
        relative.next()
        assert merged_kib(relative.pid) == 0
        for _ in "12":
            ksm.scan_once()
        assert merged_kib(relative.pid) == 0
    assert mine[:] == contents(first)
