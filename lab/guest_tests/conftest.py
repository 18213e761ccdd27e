# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the program on a real kernel. They run inside a machine only."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nuksmlab import numa
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import Spec, StartTenant, Tenant


def pytest_sessionstart() -> None:
    if "NUKSM_OUTPUT" not in os.environ:
        pytest.exit("these tests run in a machine: make guest", returncode=2)


@pytest.fixture(autouse=True)
def known_room(request: pytest.FixtureRequest) -> None:
    """CPUs keep few free pages to themselves, which nobody can count.

    Costs are measured with the kernel's own settings.
    """
    if request.node.get_closest_marker("cost") is None:
        Path("/proc/sys/vm/percpu_pagelist_high_fraction").write_text("10000")


@pytest.fixture
def output() -> Path:
    return Path(os.environ["NUKSM_OUTPUT"])


@pytest.fixture
def nodes() -> list[int]:
    return numa.online()


@pytest.fixture
def ksm() -> Iterator[Ksm]:
    """Merging as on a machine that just started; nothing merged is left behind."""
    ksm = Ksm()
    ksm.stop()
    yield ksm
    ksm.unmerge()


@pytest.fixture
def start() -> Iterator[StartTenant]:
    """Starts tenants; whatever is left of them at the end is killed."""
    tenants: list[Tenant] = []

    def start_tenant(
        name: str,
        node: int,
        mib: int = 8,
        *,
        prefix: tuple[str, ...] = (),
        madvised: bool = True,
        **shares: int,
    ) -> Tenant:
        spec = Spec(name, node, mib, madvised=madvised, **shares)
        tenants.append(Tenant(spec, prefix))
        return tenants[-1]

    yield start_tenant
    for tenant in tenants:
        tenant.process.kill()
        tenant.process.communicate()


@pytest.fixture
def merged(ksm: Ksm, start: StartTenant, nodes: list[int]) -> list[Tenant]:
    """One tenant per node, their equal pages merged, the kernel's way."""
    tenants = [
        start(f"vm-{node}", node, equal=80, private=10, changing=10) for node in nodes
    ]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    return tenants
