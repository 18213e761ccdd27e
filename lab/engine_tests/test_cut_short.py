# SPDX-License-Identifier: GPL-2.0-only
"""Scans that are cut short: what was filed by then is filed no more.

What goes wrong otherwise is memory used after it was freed: the kernel that
checks itself says so, and the others may.
"""

import signal
import subprocess
from pathlib import Path

import pytest

from nuksmlab import numa, wait
from nuksmlab.ksm import FAST, Ksm
from nuksmlab.tenant import StartTenant

DEBUGFS = Path("/sys/kernel/debug/nuksm")
WINDOWS = DEBUGFS / "windows"
MIB = 8
PAGES = MIB * 256
# A second or more for a scan of both tenants' pages.
SLOWLY = {"pages_to_scan": 20, "sleep_millisecs": 2}


def audit() -> list[str]:
    """What the kernel's walk of all it tracks says, if it can."""
    path = DEBUGFS / "audit"
    return path.read_text().splitlines()[-1:] if path.exists() else ["audit: ok"]


def wait_to_exceed(ksm: Ksm, counter: str, count: int) -> int:
    """What the counter is then."""
    wait.until(
        lambda: ksm.read(counter) > count,
        lambda: f"{counter} above {count}; counters are {ksm.counters()}",
    )
    return ksm.read(counter)


def file_some(ksm: Ksm, pages: int = 1) -> None:
    """Until a scan is going on that has looked at so many pages."""
    ksm.set_speed(SLOWLY)
    ksm.start()
    while True:
        scans = wait_to_exceed(ksm, "full_scans", ksm.read("full_scans") + 1)
        wait_to_exceed(ksm, "pages_scanned", ksm.read("pages_scanned") + pages)
        if ksm.read("full_scans") == scans and ksm.read("pages_unshared") > 0:
            return


@pytest.mark.slow
@pytest.mark.needs(nodes=2)
def test_nodes_get_their_trees_and_lose_them_and_get_them_again(
    ksm: Ksm, start: StartTenant
) -> None:
    """While pages are tracked, and none is merged."""
    trees = None
    tenants = [
        start(f"vm-{node}", node, mib=MIB, equal=0, private=100) for node in (0, 1)
    ]
    # Each scan looks at all pages.
    ksm.write("smart_scan", 0)
    try:
        for _ in range(3):
            for across in (0, 1):
                # Node 1's trees are given up when they have pages, and come back
                # before it is node 1's turn.
                file_some(ksm, 3 * PAGES // 2 if across else 1)
                trees = trees or ksm.read("trees")
                ksm.write("merge_across_nodes", across)
                divided = 1 if across else len(numa.online())
                assert ksm.read("trees") == trees // divided
                assert audit() == ["audit: ok"]
                ksm.set_speed(FAST)
                ksm.wait_scans(1)
            tenants.pop().process.kill()
            tenants.append(start("another", 1, mib=MIB, equal=0, private=100))
    finally:
        ksm.unmerge()
        ksm.write("merge_across_nodes", 1)
        ksm.write("smart_scan", 1)
    assert all(tenant.bad_pages() == 0 for tenant in tenants)


@pytest.mark.windows
@pytest.mark.parametrize("_", range(3))
def test_unmerging_is_interrupted(ksm: Ksm, start: StartTenant, _: int) -> None:
    tenants = [
        start(f"vm-{number}", mib=8, equal=10, private=90) for number in range(3)
    ]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    file_some(ksm)
    (WINDOWS / "unmerge").write_text("20000")
    try:
        writer = subprocess.Popen(
            ["sh", "-c", 'exec /bin/echo 2 >"$0"', ksm.root / "run"]
        )
        wait.until(lambda: ksm.read("run") == 2, lambda: "the beginning of it")
        writer.send_signal(signal.SIGTERM)
        writer.wait()
    finally:
        (WINDOWS / "unmerge").write_text("0")
    assert ksm.read("run") == 0, "it was not interrupted"
    ksm.set_speed(FAST)
    ksm.start()
    ksm.wait_scans(3)
    assert audit() == ["audit: ok"]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    assert all(tenant.bad_pages() == 0 for tenant in tenants)
