# SPDX-License-Identifier: GPL-2.0-only
"""Memory of a slow tier, from where no merged page would come back by itself."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from nuksmlab import numa, stress
from nuksmlab.ksm import FAST, Ksm
from nuksmlab.looks import SOON, look
from nuksmlab.tenant import StartTenant

pytestmark = pytest.mark.tiers

FAST_NODE, SLOW_NODE = 0, 2
SCANS = 3


@pytest.mark.parametrize("placement", ["fair", "priority"])
@pytest.mark.parametrize("first", [FAST_NODE, SLOW_NODE])
def test_equal_cold_sharers_leave_pages_where_memory_is_fast(
    ksm: Ksm, start: StartTenant, placement: str, first: int
) -> None:
    ksm.write_text("placement", placement)
    order = sorted((FAST_NODE, SLOW_NODE), key=lambda node: node != first)
    tenants = {node: start(f"vm-{node}", FAST_NODE, mib=4) for node in order}
    stress.migrate(tenants[SLOW_NODE].pid, FAST_NODE, SLOW_NODE)
    assert tenants[SLOW_NODE].equal_pages_by_node() == {
        SLOW_NODE: tenants[SLOW_NODE].equal_pages
    }
    ksm.merge(sum(tenant.equal_pages for tenant in tenants.values()))
    for tenant in tenants.values():
        assert tenant.equal_pages_by_node() == {FAST_NODE: tenant.equal_pages}
        assert tenant.bad_pages() == 0


def test_a_slow_tier_is_not_asked_again_and_again(ksm: Ksm, start: StartTenant) -> None:
    """That it takes no page is no lack of room, which would end some time."""
    no_room = ksm.read("placed_no_room")
    tenants = [start(f"vm-{number}", FAST_NODE, mib=4) for number in range(2)]
    stress.migrate(tenants[1].pid, FAST_NODE, SLOW_NODE)
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    ksm.wait_scans(2)
    assert ksm.read("placed_no_room") == no_room


def test_who_may_have_slow_memory_only_has_merged_pages_there(
    ksm: Ksm, start: StartTenant
) -> None:
    """But not as long as somebody else may have them where it is fast."""
    ksm.write("look_cpu_permille", 0)
    tenants = [start(f"vm-{number}", FAST_NODE, mib=4) for number in range(2)]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    with ExitStack() as cpusets:
        for number, tenant in enumerate(tenants):
            assert tenant.share_on(FAST_NODE) == 1
            cgroup = cpusets.enter_context(
                stress.cpuset(f"cpuset-{number}", tenant.pid)
            )
            stress.put(cgroup / "cpuset.mems", SLOW_NODE)
            for _ in range(SCANS):
                ksm.scan_once()
        assert [tenant.share_on(SLOW_NODE) for tenant in tenants] == [1, 1]
    assert all(tenant.bad_pages() == 0 for tenant in tenants)


def test_who_is_to_have_other_memory_has_it_where_it_is_fast(
    ksm: Ksm, start: StartTenant
) -> None:
    """Though ksmd, who finds that out, has not come by, and looks know of no other."""
    with ExitStack() as cpusets:
        slow, fast = tenants = [
            start(f"vm-{number}", FAST_NODE, mib=4) for number in range(2)
        ]
        cgroups = [
            cpusets.enter_context(stress.cpuset(f"cpuset-{number}", tenant.pid))
            for number, tenant in enumerate(tenants)
        ]
        stress.put(cgroups[0] / "cpuset.mems", SLOW_NODE)
        assert slow.share_on(SLOW_NODE) == 1
        ksm.merge(sum(tenant.equal_pages for tenant in tenants))
        assert fast.share_on(FAST_NODE) == 1
        ksm.write("pages_to_scan", 0)
        ksm.write("look_cpu_permille", 1000)
        stress.put(cgroups[1] / "cpuset.mems", 1)
        for _ in range(SOON):
            look(ksm)
        assert fast.share_on(FAST_NODE) == 1
        ksm.set_speed(FAST)
        ksm.wait_scans(SCANS)
        assert fast.share_on(1) == 1
    assert all(tenant.bad_pages() == 0 for tenant in tenants)


def test_the_machine_has_a_slow_tier() -> None:
    """Else the other tests would show nothing."""
    assert numa.online() == [0, 1, SLOW_NODE]
    tiers = Path("/sys/devices/virtual/memory_tiering").glob("memory_tier*/nodelist")
    assert {tier.read_text().strip() for tier in tiers} == {"0-1", str(SLOW_NODE)}
