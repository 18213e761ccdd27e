# SPDX-License-Identifier: GPL-2.0-only
"""MADV_FREE says that pages may be lost: its own, not those that others share."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from nuksmlab import stress
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import Spec, Tenant

MIB = 2
PAGES = MIB * 256


@pytest.fixture
def cgroup() -> Iterator[stress.Cgroup]:
    nodes = Path("/sys/devices/system/node")
    if not (stress.CGROUPS / "cgroup.subtree_control").exists() or not nodes.exists():
        pytest.skip("this kernel has no memory cgroups, or no nodes")
    stress.account_memory()
    cgroup = stress.Cgroup("freed")
    yield cgroup
    cgroup.end()


def test_who_frees_a_page_frees_it_for_himself(ksm: Ksm, cgroup: stress.Cgroup) -> None:
    def start(name: str) -> Tenant:
        return Tenant(Spec(name, 0, MIB), cgroup.prefix())

    with start("owner") as owner:
        with start("other"):
            ksm.merge(2 * PAGES)
        ksm.wait_scans(2)
        owner.command("free")
        with start("late") as late:
            ksm.merge(2 * PAGES)
            with contextlib.suppress(OSError):  # the kernel says that it found less
                cgroup.reclaim(64)
            assert late.bad_pages() == 0
