# SPDX-License-Identifier: GPL-2.0-only
"""Figure 8, from made-up races for memory."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nuksmlab.paper import report
from nuksmlab.paper.__main__ import verdict
from nuksmlab.paper.pressure import plan, section
from nuksmlab.paper.pressure.records import Moment, Observed, Run
from nuksmlab.paper.section import Check


def failed(checks: Sequence[Check]) -> list[str]:
    return [check.what for check in checks if not check.holds]


def race(run: Run, killed: Sequence[str]) -> Observed:
    moment: Moment = {
        "seconds": 4.0,
        "free_mib": 20.0,
        "saved_mib": 1020.0,
        "ksmd_seconds": 3.0,
        "allocated_mib": 160,
    }
    return {"run": run, "moments": [moment], "killed": list(killed)}


def races(killed: Sequence[str], ours_killed: Sequence[str]) -> list[Observed]:
    return [
        race(run, ours_killed if run["configuration"] == "ours" else killed)
        for run in plan.runs(2, 5)
    ]


def test_figure_8_says_who_ran_out_of_memory(tmp_path: Path) -> None:
    made = section.section(races(["instance-0"], []), "raw/x")
    assert failed(made.checks) == []
    report.write(tmp_path, [made], [], {}, None)
    lines = (tmp_path / "figure-8.csv").read_text().splitlines()
    died = "160,KSM,0,out of memory at 4.0 s,out of memory at 900 s,20"
    assert f"worst,{died}" in lines[1]
    assert "worst,160,ours,0,all merged at 4.0 s,-,20" in lines[3]
    assert f"ordinary,{died}" in lines[19]
    how_often = "twice with the worst data, 5 times with ordinary data"
    assert how_often in " ".join(made.paragraphs)


@pytest.mark.parametrize(
    ("both", "missed"), [([], 1), (["instance-0"], 5)], ids=["survive", "lose"]
)
def test_figure_8s_goals_do_not_hold_where_both_end_the_same(
    both: list[str], missed: int
) -> None:
    made = section.section(races(both, both), "raw/x")
    assert len(failed(made.checks)) == missed


@pytest.mark.parametrize(("data", "interval"), [("ordinary", 0.2), ("worst", 0.3)])
def test_one_loss_of_ours_is_found_out_though_others_lose_more(
    data: str, interval: float
) -> None:
    results = races(["instance-0"], [])
    for one in results:
        run = one["run"]
        if (run["data"], run["interval"], run["repetition"]) == (data, interval, 1):
            one["killed"] = ["instance-0"]
    (what,) = failed(section.section(results, "raw/x").checks)
    assert what.startswith(f"{data} data")


def test_where_ours_survives_and_merges_a_part_only_it_is_found_out() -> None:
    results = races(["instance-0"], [])
    last = next(
        one for one in reversed(results) if one["run"]["configuration"] == "ours"
    )
    last["moments"][-1]["saved_mib"] = 200.0
    made = section.section(results, "raw/x")
    goal = "ordinary data at 80 MiB/s: merged with ours in the end, of an instance"
    assert failed(made.checks) == [goal]
    assert "not all merged after 4.0 s" in str(made.tables[0].rows)


def of_the_forest(results: list[Observed]) -> tuple[str, str]:
    """What is said of it: in the text, and on the first page."""
    made = section.section(results, "raw/x")
    return made.paragraphs[-1], made.claims[0].remark


def test_what_is_said_of_the_papers_forest_is_what_was_found() -> None:
    results = races(["instance-0"], [])
    forest = [one for one in results if one["run"]["configuration"] == section.FOREST]
    text, remark = of_the_forest(results)
    assert "KSM runs out of memory in 16 of 16 races, its forest in 16" in text
    assert "So it is no help" in text
    assert "it is no help" in remark
    forest[0]["killed"] = []
    text, remark = of_the_forest(results)
    assert "its forest in 15" in text
    assert "So it helps at times only" in text
    assert "it helps at times only" in remark
    for one in forest:
        one["killed"] = []
    text, remark = of_the_forest(results)
    assert "So it is here" in text
    assert remark == "so it is here"


def test_where_stocks_index_survives_nothing_is_said_of_the_forest() -> None:
    text, remark = of_the_forest(races([], []))
    assert "So this says nothing of it" in text
    assert remark == "KSM does not either"


def test_figure_8s_goals_hold_in_each_repetition_and_for_ordinary_data() -> None:
    results = races(["instance-0"], [])
    once = next(one for one in results if one["run"]["configuration"] == "KSM")
    once["killed"] = []
    assert len(failed(section.section(results, "raw/x").checks)) == 1
    made = section.section(races([], ["instance-0"]), "raw/x")
    assert len(failed(made.checks)) == 5


@pytest.mark.parametrize(
    ("forgive_clock", "killed", "bad_pages", "holds"),
    [(True, [], 0, True), (False, [], 0, False), (True, ["KSM"], 1, False)],
)
def test_only_what_the_clock_says_is_forgiven_in_small(
    forgive_clock: bool, killed: list[str], bad_pages: int, holds: bool
) -> None:
    by_clock = section.section(races(killed, []), "raw/pressure")
    counted = replace(
        by_clock, checks=[Check("bad pages", "0", str(bad_pages), not bad_pages)]
    )
    assert verdict([by_clock, counted], forgive_clock=forgive_clock) == holds
