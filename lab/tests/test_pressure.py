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
        "saved_mib": 1000.0,
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


@pytest.mark.parametrize("both", [[], ["instance-0"]])
def test_figure_8s_goal_does_not_hold_where_both_end_the_same(both: list[str]) -> None:
    made = section.section(races(both, both), "raw/x")
    assert len(failed(made.checks)) == 1


def test_what_is_said_of_the_papers_forest_is_what_was_found() -> None:
    results = races(["instance-0"], [])
    assert "Here it does not" in section.on_the_forest(results)
    forest = section.FOREST
    once = next(one for one in results if one["run"]["configuration"] == forest)
    once["killed"] = []
    assert "So it does here" in section.on_the_forest(results)


def test_figure_8s_goals_hold_in_each_repetition_and_for_ordinary_data() -> None:
    results = races(["instance-0"], [])
    once = next(one for one in results if one["run"]["configuration"] == "KSM")
    once["killed"] = []
    assert len(failed(section.section(results, "raw/x").checks)) == 1
    made = section.section(races([], ["instance-0"]), "raw/x")
    assert len(failed(made.checks)) == 3


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
