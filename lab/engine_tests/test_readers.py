# SPDX-License-Identifier: GPL-2.0-only
"""Anybody may read what the kernel says of KSM: nobody can stop it by that."""

import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from nuksmlab.fuzz import readers
from nuksmlab.ksm import Ksm, process_stat
from nuksmlab.tenant import StartTenant

pytestmark = pytest.mark.needs(nodes=2)

READERS = 16
INTERVAL_SECONDS = 5.0
INTERVALS = 4
LEAST = 0.9
UNMERGED_MIB = 64


def what_stock_has() -> Sequence[Path]:
    """As many reads as of all files: of those that have been there before."""
    root = Ksm().root
    stock = [root / name for name in ("pages_shared", "pages_sharing", "full_scans")]
    everything = len(readers.every_file())
    return (stock * everything)[:everything]


def scanned_per_second(ksm: Ksm) -> float:
    before, began = ksm.read("pages_scanned"), time.monotonic()
    time.sleep(INTERVAL_SECONDS)
    return (ksm.read("pages_scanned") - before) / (time.monotonic() - began)


@pytest.mark.cost
def test_readers_do_not_slow_ksmd_down(ksm: Ksm, start: StartTenant) -> None:
    """Compared with readers of stock's counters, in turn."""
    tenants = [start(f"vm-{node}", node, mib=16) for node in (0, 1)]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    ksm.set_speed({"pages_to_scan": 1000, "sleep_millisecs": 0})
    ratios = []
    for _ in range(INTERVALS):
        with readers.reading(what_stock_has, readers.NOBODY, READERS):
            stock = scanned_per_second(ksm)
        with readers.reading(readers.every_file, readers.NOBODY, READERS):
            ours = scanned_per_second(ksm)
        print(f"  {stock:.0f} and {ours:.0f} pages/s")
        ratios.append(ours / stock)
    ratio = statistics.median(ratios)
    print(f"  {ratio:.2f}, from {min(ratios):.2f} to {max(ratios):.2f}")
    assert ratio >= LEAST


def test_a_process_is_told_of_its_pages_while_ksm_is_busy(
    ksm: Ksm, start: StartTenant
) -> None:
    """`run` 2 keeps ksmd's mutex until all is taken apart.

    Who waited for it would be told only when nothing is merged any more.
    """
    tenants = [start(f"vm-{node}", node, mib=UNMERGED_MIB) for node in (0, 1)]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    merged, told = ksm.merged(), 0
    with subprocess.Popen(["sh", "-c", f"echo 2 >{ksm.root}/run"]) as unmerging:
        while unmerging.poll() is None:
            before = ksm.merged()
            process_stat(tenants[0].pid)
            told += before < merged and ksm.merged() > 0
    assert unmerging.returncode == 0
    assert told > 0
