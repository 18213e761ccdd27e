# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the engine, on its own kernel. They run inside it only."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nuksmlab import stress
from nuksmlab.domains import Group, group
from nuksmlab.ksm import Ksm
from nuksmlab.paged import frames, page_out, slots
from nuksmlab.tenant import ANYWHERE, Spec, StartTenant, Tenant

DEFAULTS = {
    "index": "checksum",
    "kib_per_tree": "16",
    "placement": "fair",
    "look_cpu_permille": "5",
    "replica_percent": "0",
    "default_domain": "shared",
}


def pytest_sessionstart() -> None:
    if "NUKSM_OUTPUT" not in os.environ:
        pytest.exit("these tests run in the engine's kernel: make engine", returncode=2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("undivided") is None)


@pytest.fixture
def ksm() -> Iterator[Ksm]:
    """Nothing merged, nothing tracked: the state in which the index may change.

    On a stock kernel, which the kernel's own tests run on, too, there is none.
    """
    ksm = Ksm()
    ksm.unmerge()
    for name, value in DEFAULTS.items():
        if (ksm.root / name).exists():
            ksm.write_text(name, value)
    ksm.set_speed({"pages_to_scan": 100000, "sleep_millisecs": 0})
    yield ksm
    ksm.unmerge()


@pytest.fixture
def start() -> Iterator[StartTenant]:
    """Starts tenants; whatever is left of them at the end is killed."""
    tenants: list[Tenant] = []

    def start_tenant(
        name: str, node: int = ANYWHERE, mib: int = 16, **shares: int
    ) -> Tenant:
        tenants.append(Tenant(Spec(name, node, mib, madvised=True, **shares)))
        return tenants[-1]

    yield start_tenant
    for tenant in tenants:
        tenant.process.kill()
        tenant.process.communicate()


@pytest.fixture
def swap() -> Iterator[Path]:
    """Somewhere to page out to: 64 MiB of compressed memory."""
    if not Path("/sys/block/zram0").exists():
        pytest.skip("this kernel has nothing to swap to")
    device = stress.Swap(64)
    yield Path(device.device)
    device.off()
    stress.put(Path("/sys/block/zram0/reset"), 1)


@pytest.fixture
def wide_watermarks() -> Iterator[None]:
    """So many MiB from one watermark to the next that a node can stay between."""
    knob = Path("/proc/sys/vm/min_free_kbytes")
    before = knob.read_text()
    knob.write_text(str(128 << 10))
    yield
    knob.write_text(before)


@pytest.fixture
def pair(ksm: Ksm, start: StartTenant) -> list[Tenant]:
    """One tenant with 2 MiB on each of two nodes, merged."""
    tenants = [start(f"vm-{node}", node, mib=2) for node in (0, 1)]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    return tenants


@pytest.fixture
def small_pair(ksm: Ksm, start: StartTenant) -> list[Tenant]:
    """Two on different nodes that share all of their pages, which are few."""
    tenants = [start(f"pair-{node}", node, mib=1, seed=3) for node in (0, 1)]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    return tenants


@pytest.fixture
def often(ksm: Ksm) -> None:
    """A look each second, whatever it takes here; and room for all replicas."""
    ksm.write("look_cpu_permille", 1000)
    ksm.write("replica_percent", 100)


@pytest.fixture
def stranger() -> Iterator[Group]:
    """A cgroup in a domain of its own."""
    stress.account_memory()
    with group("stranger") as stranger:
        stranger.give(5)
        yield stranger


@pytest.fixture
def old() -> Iterator[Group]:
    """The cgroup whose memory is paged out, in the domain that all begin in."""
    stress.account_memory()
    with group("old") as old:
        yield old


@pytest.fixture
def paged_pair(ksm: Ksm, old: Group, stranger: Group) -> Iterator[list[Tenant]]:
    """Two tenants with the same pages, all paged out, as they are merged."""
    assert stranger.given() == "5"
    with ExitStack() as stack:
        tenants = [
            stack.enter_context(Tenant(Spec(name, ANYWHERE, mib=2), old.prefix()))
            for name in ("stays", "leaves")
        ]
        ksm.merge(2 * tenants[0].equal_pages)
        ksm.rest()
        page_out(lambda: frames(tenants[0]) | frames(tenants[1]), old)
        assert slots(tenants[0]) == slots(tenants[1])
        yield tenants
