# SPDX-License-Identifier: GPL-2.0-only
"""Placement by the kernel: shares, heat, room, and what it says of them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from nuksmlab import numa, policy, wait
from nuksmlab.ksm import FAST, Ksm, process_stat
from nuksmlab.shares import merge
from nuksmlab.tenant import StartTenant, Tenant

MIB = 8
PAGES = MIB * 256

# Nodes and nice values of the tenants.
TWO_NODES = [
    ((0, 1), (-20, -11)),
    ((0, 1, 0), (-20, -16, -11)),
    ((1, 0, 1), (5, -5, 19)),
]
FOUR_NODES = [
    ((0, 1, 2, 3), (-20, -18, -15, -11)),
    ((0, 1, 2, 3, 0, 1, 2, 3), (-20, -19, -18, -17, -16, -15, 0, 19)),
    ((3, 3, 1, 0), (0, 10, -10, 19)),
]


def orders(count: int) -> list[list[int]]:
    """As they are, the other way round, and from the middle."""
    there = list(range(count))
    return [there, there[::-1], there[count // 2 :] + there[: count // 2]]


def shares(tenant: Tenant, nodes: Sequence[int]) -> list[float]:
    """Of the tenant's equal pages, by the kernel's account."""
    pages = tenant.equal_pages_by_node()
    assert sum(pages.values()) == tenant.equal_pages
    return [pages.get(node, 0) / tenant.equal_pages for node in sorted(set(nodes))]


def check(found: Sequence[float], wanted: Sequence[float]) -> None:
    assert policy.off_by_more_than_chance(found, wanted, PAGES) is None


def check_shares(
    ksm: Ksm,
    start: StartTenant,
    placement: str,
    case: tuple[Sequence[int], Sequence[int]],
    *,
    staged: bool,
) -> None:
    nodes, nices = case
    ksm.write_text("placement", placement)
    for order in orders(len(nodes)):
        ksm.unmerge()
        tenants: list[Tenant] = []
        for number in order:
            tenants.append(start(f"vm-{number}", nodes[number], mib=MIB))
            tenants[-1].renice(nices[number])
            if staged and len(tenants) > 1:
                merge(ksm, tenants)
        merge(ksm, tenants)
        for tenant in tenants:
            print(f"  in the order {order}")
            wanted = policy.target(placement, nodes, nices)
            check(shares(tenant, nodes), wanted)
        for tenant in tenants:
            assert tenant.bad_pages() == 0
            tenant.quit()


@pytest.mark.needs(nodes=2)
@pytest.mark.parametrize("staged", [False, True], ids=["together", "staged"])
@pytest.mark.parametrize("case", TWO_NODES, ids=str)
@pytest.mark.parametrize("placement", ["fair", "priority"])
def test_shares_on_two_nodes(
    ksm: Ksm,
    start: StartTenant,
    placement: str,
    case: tuple[Sequence[int], Sequence[int]],
    staged: bool,
) -> None:
    check_shares(ksm, start, placement, case, staged=staged)


@pytest.mark.needs(nodes=4)
@pytest.mark.parametrize("case", FOUR_NODES, ids=str)
@pytest.mark.parametrize("placement", ["fair", "priority"])
def test_shares_on_four_nodes(
    ksm: Ksm,
    start: StartTenant,
    placement: str,
    case: tuple[Sequence[int], Sequence[int]],
) -> None:
    check_shares(ksm, start, placement, case, staged=False)


@pytest.mark.needs(nodes=2)
def test_first_is_what_stock_does(ksm: Ksm, start: StartTenant) -> None:
    ksm.write_text("placement", "first")
    tenants = [start(f"vm-{node}", node, mib=MIB) for node in (0, 1)]
    before = decisions(ksm)
    merge(ksm, tenants)
    assert max(shares(tenants[0], (0, 1))) >= 0.95
    assert decisions(ksm) == before


def decisions(ksm: Ksm) -> dict[str, int]:
    reasons = ("hot", "spread", "priority", "no_room")
    return {reason: ksm.read(f"placed_{reason}") for reason in reasons}


def heat(ksm: Ksm, hot: Sequence[Tenant]) -> None:
    """One scan, then reads by some; the next scan merges."""
    ksm.scan_once()
    for tenant in hot:
        assert tenant.bad_pages() == 0


@pytest.mark.needs(nodes=2)
@pytest.mark.parametrize("hot", [0, 1])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_pages_stay_where_they_are_read(
    ksm: Ksm, start: StartTenant, hot: int, order: Sequence[int]
) -> None:
    tenants = {node: start(f"vm-{node}", node, mib=MIB) for node in order}
    before = decisions(ksm)
    heat(ksm, [tenants[hot]])
    merge(ksm, list(tenants.values()))
    assert shares(tenants[hot], (0, 1))[hot] >= 0.99
    after = decisions(ksm)
    assert after["hot"] - before["hot"] >= 0.99 * tenants[hot].equal_pages
    assert all(tenant.bad_pages() == 0 for tenant in tenants.values())


@pytest.mark.needs(nodes=2)
def test_placement_changes_at_once(ksm: Ksm, start: StartTenant) -> None:
    ksm.write_text("placement", "priority")
    tenants = [start(f"vm-{node}", node, mib=MIB, seed=1) for node in (0, 1)]
    tenants[0].renice(-20)
    merge(ksm, tenants)
    check(shares(tenants[0], (0, 1)), [21 / 22, 1 / 22])
    ksm.write_text("placement", "fair")
    more = [start(f"vm-{node + 2}", node, mib=MIB, seed=2) for node in (0, 1)]
    more[0].renice(-20)
    merge(ksm, [*tenants, *more])
    check(shares(more[0], (0, 1)), [0.5, 0.5])


@pytest.mark.needs(nodes=2)
@pytest.mark.parametrize("placement", ["fair", "priority"])
def test_placing_everything_anew(ksm: Ksm, start: StartTenant, placement: str) -> None:
    """By writing 2, which puts each copy where its tenant had it, and then 1.

    From either node: by itself, a copy goes where the writer runs.
    """
    tenants = [start(f"vm-{node}", node, mib=MIB) for node in (0, 1)]
    tenants[1].renice(19)
    merge(ksm, tenants)
    ksm.write_text("placement", placement)
    for writer in (0, 1):
        with numa.running_on(writer):
            ksm.unmerge()
        for tenant in tenants:
            assert tenant.equal_pages_by_node() == {
                tenant.spec.node: tenant.equal_pages
            }
        merge(ksm, tenants)
        for tenant in tenants:
            wanted = policy.target(placement, (0, 1), (0, 19))
            check(shares(tenant, (0, 1)), wanted)
    assert all(tenant.bad_pages() == 0 for tenant in tenants)


@pytest.mark.needs(nodes=2)
def test_a_page_merged_again_belongs_where_it_did(ksm: Ksm, start: StartTenant) -> None:
    """Who takes pages apart and merges them anew gets no other lots."""
    tenants = [start(f"vm-{node}", node, mib=MIB) for node in (0, 1)]
    merge(ksm, tenants)
    before = tenants[0].equal_pages_nodes()
    for _ in range(3):
        ksm.unmerge()
        merge(ksm, tenants)
        assert tenants[0].equal_pages_nodes() == before


@pytest.mark.needs(nodes=2)
def test_pages_stay_on_their_nodes_without_merging_across(
    ksm: Ksm, start: StartTenant
) -> None:
    ksm.write("merge_across_nodes", 0)
    tenants = [
        start(f"vm-{number}", node, mib=MIB) for number, node in enumerate((0, 0, 1, 1))
    ]
    before = decisions(ksm)
    merge(ksm, tenants)
    try:
        for tenant in tenants:
            assert tenant.equal_pages_by_node() == {
                tenant.spec.node: tenant.equal_pages
            }
        assert decisions(ksm) == before
    finally:
        ksm.unmerge()
        ksm.write("merge_across_nodes", 1)


def fill(start: StartTenant, node: int) -> list[Tenant]:
    """Leaves less free than the high watermark, and more than the low one."""
    high = numa.high_watermark_mib(node)
    fillers: list[Tenant] = []
    while (room := numa.free_mib(node) - (high - high // 12)) > 0:
        name = f"filler-{len(fillers)}"
        fillers.append(start(name, node, mib=room, equal=0, private=100))
    return fillers


@pytest.mark.needs(nodes=2)
@pytest.mark.usefixtures("wide_watermarks")
def test_a_full_node_wins_nothing(ksm: Ksm, start: StartTenant) -> None:
    tenants = [start(f"vm-{node}", node, mib=MIB) for node in (0, 1)]
    heat(ksm, [tenants[1]])
    fill(start, 1)
    before = decisions(ksm)
    ksm.set_speed({"pages_to_scan": 100, "sleep_millisecs": 0})
    ksm.wait_scans(1)
    after = decisions(ksm)
    assert after["no_room"] > before["no_room"]
    assert all(tenant.bad_pages() == 0 for tenant in tenants)


@pytest.mark.needs(nodes=2)
@pytest.mark.usefixtures("wide_watermarks")
def test_a_node_that_has_room_again_gets_its_pages(
    ksm: Ksm, start: StartTenant
) -> None:
    tenants = [start(f"vm-{node}", node, mib=MIB) for node in (0, 1)]
    heat(ksm, [tenants[1]])
    fillers = fill(start, 1)
    before = ksm.read("placed_no_room")
    ksm.set_speed({"pages_to_scan": 100, "sleep_millisecs": 0})
    ksm.wait_scans(1)
    assert ksm.read("placed_no_room") > before
    for filler in fillers:
        filler.quit()
    merge(ksm, tenants)
    ksm.set_speed(FAST)
    ksm.wait_scans(3)
    # Half of what nobody uses any more, and all that was seen to be used.
    assert shares(tenants[1], (0, 1))[1] >= 1 / 2 - policy.allowed(1 / 2, PAGES)


@pytest.mark.needs(nodes=2)
@pytest.mark.usefixtures("wide_watermarks")
def test_another_rule_waits_for_room(ksm: Ksm, start: StartTenant) -> None:
    """Nobody uses the pages: looks ask them once, and there is no room then."""
    ksm.write("look_cpu_permille", 1000)
    ksm.write_text("placement", "first")
    tenants = [start(f"vm-{node}", node, mib=MIB) for node in (0, 1)]
    merge(ksm, tenants)
    here = int(shares(tenants[0], (0, 1))[1] > 1 / 2)
    fillers = fill(start, 1 - here)
    before = tenants[0].equal_pages_by_node()
    ksm.write_text("placement", "fair")
    goal = ksm.read("looks") + 5
    wait.until(lambda: ksm.read("looks") >= goal, lambda: f"look {goal}")
    assert tenants[0].equal_pages_by_node() == before
    for filler in fillers:
        filler.quit()
    least = 1 / 2 - policy.allowed(1 / 2, PAGES)
    wait.until(
        # A page that is on its way is nowhere
        lambda: min(tenants[0].share_on(node) for node in (0, 1)) >= least,
        lambda: f"{tenants[0].equal_pages_by_node()}",
        poll=1,
    )


@pytest.mark.needs(nodes=2)
def test_counters_agree_with_each_other(ksm: Ksm, start: StartTenant) -> None:
    tenants = [start(f"vm-{node}", node, mib=MIB) for node in (0, 1)]
    merge(ksm, tenants)
    ksm.stop()
    counters = ksm.counters()
    for kind in ("shared", "sharing"):
        by_node = ksm.read_text(f"pages_{kind}_by_node").split()
        assert [entry.partition("=")[0] for entry in by_node] == ["N0", "N1"]
        total = sum(int(entry.partition("=")[2]) for entry in by_node)
        assert total == counters[f"pages_{kind}"]
    for tenant in tenants:
        stat = process_stat(tenant.pid)
        local = tenant.equal_pages_by_node()[tenant.spec.node]
        assert stat["ksm_merged_local"] == local
        assert (
            stat["ksm_merged_local"] + stat["ksm_merged_remote"]
            == (stat["ksm_merging_pages"])
        )


@pytest.mark.needs(nodes=2)
def test_decisions_and_migrations_are_traced(ksm: Ksm, start: StartTenant) -> None:
    tracing = Path("/sys/kernel/tracing")
    (tracing / "trace").write_text("")
    enable = tracing / "events" / "nuksm" / "enable"
    enable.write_text("1")
    try:
        tenants = [start(f"vm-{number}", 0, mib=1) for number in range(2)]
        merge(ksm, tenants)
        merge(ksm, [*tenants, start("vm-2", 1, mib=1)])
    finally:
        enable.write_text("0")
    trace = (tracing / "trace").read_text()
    assert "nuksm_place: " in trace
    assert "belongs on node 1: shared by 2 nodes, cold on 2 of them, by spread" in trace
    assert "nuksm_migrate: " in trace
    assert "from node 0 to node 1: 0" in trace


@pytest.mark.needs(nodes=2)
@pytest.mark.parametrize("value", ["", "hottest", "fair priority"])
def test_unknown_placements_are_refused(ksm: Ksm, value: str) -> None:
    before = ksm.read_text("placement")
    with pytest.raises(OSError, match="Invalid"):
        ksm.write_text("placement", value)
    assert ksm.read_text("placement") == before == "first [fair] priority"
