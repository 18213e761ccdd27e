# SPDX-License-Identifier: GPL-2.0-only
"""A node without room: nothing breaks, and nuksm says so."""

import pytest

from nuksmlab import numa, program
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import StartTenant, Tenant

TENANT_MIB = 128  # fair would move half of it to the full node
LEFT_MIB = 8


def fill(start: StartTenant, node: int) -> list[Tenant]:
    """Leaves LEFT_MIB above the high watermark: nothing is reclaimed or killed.

    Pages that wait on CPUs' lists are used, too, but do not count as free
    before, so that it takes more than one tenant.
    """
    fillers: list[Tenant] = []
    keep = numa.high_watermark_mib(node) + LEFT_MIB
    while (room := numa.free_mib(node) - keep) > 0:
        name = f"filler-{len(fillers)}"
        fillers.append(start(name, node, mib=room, equal=0, private=100))
    return fillers


@pytest.mark.needs(nodes=2)
def test_full_node_is_not_overfilled(start: StartTenant, ksm: Ksm) -> None:
    tenants = [start(f"vm-{node}", node, mib=TENANT_MIB) for node in (0, 1)]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    away = min(tenants, key=lambda t: t.equal_pages_by_node().get(t.spec.node, 0))
    node = away.spec.node
    fillers = fill(start, node)
    left = numa.free_mib(node)
    report = program.place_once("fair")
    assert report["no_room"] > 0
    assert report["moved"] <= left * 256
    for tenant in (*tenants, *fillers):
        assert tenant.bad_pages() == 0
    for filler in fillers:
        filler.quit()
    program.place_once("fair")
    half = away.equal_pages / 2
    assert away.equal_pages_by_node()[node] == pytest.approx(half, abs=1)
