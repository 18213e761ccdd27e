# SPDX-License-Identifier: GPL-2.0-only
"""`nuksm estimate`: what it foretells is what the kernel then does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nuksmlab import paths, program
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import StartTenant, Tenant

pytestmark = pytest.mark.anywhere

MIX = {"equal": 40, "private": 20, "zero": 15, "alike": 10, "same": 15}
NEAR = 0.05  # tenants' stacks and heaps change while they run


IDLE = Path("/sys/kernel/mm/page_idle/bitmap")


def estimate(tenants: list[Tenant], *options: str) -> Any:
    pids = [word for tenant in tenants for word in ("--pid", str(tenant.pid))]
    return program.read_json("estimate", *options, *pids)


@pytest.fixture
def tenants(start: StartTenant, nodes: list[int]) -> list[Tenant]:
    """One per node and a second one on the first, all their memory mergeable."""
    everything = (str(paths.NUKSM), "exec", "--")
    places = [*nodes, nodes[0]]
    return [
        start(f"vm-{number}", node, prefix=everything, madvised=False, **MIX)
        for number, node in enumerate(places)
    ]


@pytest.fixture(params=[1, 0], ids=["across_nodes", "within_nodes"])
def across(request: pytest.FixtureRequest, ksm: Ksm) -> Iterator[int]:
    """The kernel lets this change only while nothing is merged."""
    ksm.write("merge_across_nodes", request.param)
    yield request.param
    ksm.unmerge()
    ksm.write("merge_across_nodes", 1)


def test_what_is_foretold_is_what_merging_saves(
    across: int, tenants: list[Tenant], ksm: Ksm
) -> None:
    foretold = estimate(tenants)["totals"]
    saving = foretold["across_nodes" if across else "within_nodes"]
    saved = saving["saved_pages"]["value"] + saving["zero_pages"]
    assert foretold["already_shared_pages"]["value"] < NEAR * saved
    ksm.merge(int(saved * (1 - NEAR)))
    sharing = ksm.read("pages_sharing") + ksm.read("ksm_zero_pages")
    print(f"foretold {saved}, saved {sharing}")
    assert sharing == pytest.approx(saved, rel=NEAR)
    profit = ksm.read("general_profit")
    print(f"foretold {saving['net_saved_bytes']['value']} bytes net, profit {profit}")
    assert profit == pytest.approx(saving["net_saved_bytes"]["value"], rel=NEAR)


def test_looking_at_merged_memory_leaves_it_merged(
    tenants: list[Tenant], ksm: Ksm
) -> None:
    before = estimate(tenants)["totals"]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    ksm.stop()
    # KSM's counters notice a page that was un-merged at the next scan only. The
    # second look sees by page frames what the first one left.
    for _ in range(2):
        after = estimate(tenants)["totals"]
        already = after["already_shared_pages"]["value"] + after["zero_already_pages"]
        assert already == pytest.approx(ksm.read("pages_sharing"), rel=NEAR)
        merged = [
            totals["across_nodes"]["saved_pages"]["value"] for totals in (before, after)
        ]
        assert merged[1] == pytest.approx(merged[0], rel=NEAR)
    assert all(tenant.bad_pages() == 0 for tenant in tenants)


def test_where_the_kernel_does_not_tell_use_the_rest_is_as_ever(
    tenants: list[Tenant],
) -> None:
    report = estimate(tenants, "--replicas", "5")
    notes = [note for note in report["notes"] if "what replicas would buy" in note]
    if IDLE.exists():
        assert report["replicas"]["budgets"][0]["percent"] == 5
        assert notes == []
    else:
        assert report["replicas"] is None
        assert len(notes) == 1
        assert "no idle page tracking" in notes[0]
    without = estimate(tenants)
    assert without["replicas"] is None
    saved = [
        told["totals"]["across_nodes"]["saved_pages"]["value"]
        for told in (report, without)
    ]
    assert saved[0] == pytest.approx(saved[1], rel=NEAR)
