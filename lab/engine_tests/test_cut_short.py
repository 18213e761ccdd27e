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
SLOWLY = {"pages_to_scan": 100, "sleep_millisecs": 1}


def audit() -> list[str]:
    """What the kernel's walk of all it tracks says, if it can."""
    path = DEBUGFS / "audit"
    return path.read_text().splitlines()[-1:] if path.exists() else ["audit: ok"]


def file_some(ksm: Ksm) -> None:
    """Until a scan is going on that has filed pages."""
    ksm.set_speed(SLOWLY)
    ksm.start()
    scans = ksm.read("full_scans")
    wait.until(
        lambda: ksm.read("full_scans") > scans + 1 and ksm.read("pages_unshared") > 0,
        lambda: f"pages that are filed; counters are {ksm.counters()}",
    )


@pytest.mark.needs(nodes=2)
def test_nodes_get_their_trees_and_lose_them_and_get_them_again(
    ksm: Ksm, start: StartTenant
) -> None:
    """While pages are tracked, and none is merged."""
    trees = None
    tenants = [
        start(f"vm-{node}", node, mib=8, equal=0, private=100) for node in (0, 1)
    ]
    try:
        for _ in range(3):
            for across in (0, 1):
                file_some(ksm)
                trees = trees or ksm.read("trees")
                ksm.write("merge_across_nodes", across)
                divided = 1 if across else len(numa.online())
                assert ksm.read("trees") == trees // divided
                assert audit() == ["audit: ok"]
                ksm.set_speed(FAST)
                ksm.wait_scans(1)
            tenants.pop().process.kill()
            tenants.append(start("another", 1, mib=8, equal=0, private=100))
    finally:
        ksm.unmerge()
        ksm.write("merge_across_nodes", 1)
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
