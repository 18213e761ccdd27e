# SPDX-License-Identifier: GPL-2.0-only
"""A node without room: nothing breaks, and nuksm says so."""

import pytest

from nuksmlab import numa, program
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import StartTenant, fill_node

TENANT_MIB = 48  # fair would move half of it to the full node
LEFT_MIB = 8


@pytest.mark.slow
@pytest.mark.needs(nodes=2)
def test_full_node_is_not_overfilled(start: StartTenant, ksm: Ksm) -> None:
    tenants = [start(f"vm-{node}", node, mib=TENANT_MIB) for node in (0, 1)]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    away = min(tenants, key=lambda t: t.equal_pages_by_node().get(t.spec.node, 0))
    node = away.spec.node
    fillers = fill_node(start, node, LEFT_MIB)
    left = numa.room_mib(node) + 1  # in parts of a MiB, there may be more
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
