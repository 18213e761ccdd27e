# SPDX-License-Identifier: GPL-2.0-only
"""The demonstration's table, summary and claims, on made-up observations."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from nuksmlab.demo import claims, paper, table
from nuksmlab.demo.records import Observed, Phase, summarize
from nuksmlab.program import Pass

PAGES = 1000
EXPECTED = Path(__file__).parent / "expected"


def make_pass(moved: int) -> Pass:
    return cast(Pass, {"moved": moved, "refused": 0})


def make_phase(name: str, nices: list[int], local: list[int], moved: int) -> Phase:
    count = len(nices)
    sharing = PAGES * (count - 1)
    status = {"kernel": "6.12.1", "ksm": {}, "nodes": [], "tenants": []}
    return cast(
        Phase,
        {
            "name": name,
            "passes": [make_pass(moved), make_pass(0)] if name != "ksm" else [],
            "pages_shared": (PAGES, PAGES),
            "pages_sharing": (sharing, sharing),
            "status": status,
            "tenants": [
                {
                    "name": f"vm-{node}",
                    "node": node,
                    "nice": nices[node],
                    "merged_pages": PAGES,
                    "local_pages": local[node],
                    "kernel_local_pages": local[node],
                }
                for node in range(count)
            ],
        },
    )


def make_observed(nodes: int) -> Observed:
    """A run in which everything went as promised."""
    one = [PAGES, *[0] * (nodes - 1)]
    phases = [
        make_phase("ksm", [0] * nodes, one, 0),
        make_phase("fair", [0] * nodes, [PAGES // nodes] * nodes, 500),
    ]
    for row in paper.TABLE_III:
        nices = [row.nice[node % 2] for node in range(nodes)]
        shares = [round(PAGES * p / 100) for p in paper.priority_percent(nices)]
        phases.append(make_phase(f"priority {row.name}", nices, shares, 400))
    bad = {f"vm-{node}": 0 for node in range(nodes)}
    return {
        "placed_by": "nuksm place",
        "nodes": nodes,
        "phases": phases,
        "bad_pages": bad,
    }


@pytest.mark.parametrize("nodes", [2, 4])
def test_table(nodes: int) -> None:
    text = table.render(summarize(make_observed(nodes)))
    assert text == (EXPECTED / f"table-{nodes}.txt").read_text()


def test_summary_has_the_documented_form() -> None:
    summary = summarize(make_observed(2))
    assert summary == json.loads((EXPECTED / "summary-2.json").read_text())


@pytest.mark.parametrize("nodes", [2, 4])
def test_kept_promises(nodes: int) -> None:
    assert claims.broken(make_observed(nodes)) == []


def test_the_paper_s_figures_follow_from_its_formula() -> None:
    for row in paper.TABLE_III:
        assert paper.priority_percent(row.nice) == pytest.approx(
            row.local_percent, abs=0.5
        )


def spread_over_both(observed: Observed) -> None:
    observed["phases"][0]["tenants"][0]["local_pages"] = 940
    observed["phases"][0]["tenants"][0]["kernel_local_pages"] = 940


def unfair(observed: Observed) -> None:
    for tenant in observed["phases"][1]["tenants"]:
        tenant["local_pages"] = tenant["kernel_local_pages"] = 511


def off_priority(observed: Observed) -> None:
    for tenant in observed["phases"][3]["tenants"]:
        tenant["local_pages"] = tenant["kernel_local_pages"] = 500


def second_pass_moves(observed: Observed) -> None:
    observed["phases"][1]["passes"][1]["moved"] = 1


def sharing_lost(observed: Observed) -> None:
    observed["phases"][1]["pages_sharing"] = (PAGES, PAGES - 1)


def bad_page(observed: Observed) -> None:
    observed["bad_pages"]["vm-1"] = 1


def kernel_disagrees(observed: Observed) -> None:
    observed["phases"][1]["tenants"][0]["kernel_local_pages"] = 600


def phase_missing(observed: Observed) -> None:
    observed["phases"].pop()


def nothing_merged(observed: Observed) -> None:
    observed["phases"][2]["tenants"][1]["merged_pages"] = 0


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (spread_over_both, "ksm: at most 94.0 %"),
        (unfair, "fair: vm-0 is 51.1 % local"),
        (off_priority, "priority C-5:1: vm-0 is 50.0 % local"),
        (second_pass_moves, "fair: a second pass moved 1 more"),
        (sharing_lost, "fair: pages_sharing fell from 1000 to 999"),
        (bad_page, "pages with wrong content"),
        (kernel_disagrees, "the kernel says 600"),
        (phase_missing, "not all phases were run"),
        (nothing_merged, "a tenant has no merged pages"),
    ],
)
def test_broken_promise_is_told(
    break_it: Callable[[Observed], None], message: str
) -> None:
    observed = make_observed(2)
    break_it(observed)
    assert any(message in claim for claim in claims.broken(observed))
