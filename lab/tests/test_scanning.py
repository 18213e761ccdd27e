# SPDX-License-Identifier: GPL-2.0-only
"""The report on what placing costs ksmd, from made-up counts."""

import json
from pathlib import Path

import pytest

from nuksmlab import accelerator, counter
from nuksmlab.counter import Caches, Counts
from nuksmlab.machine import Machine
from nuksmlab.paper import model, report
from nuksmlab.paper.extent import FULL
from nuksmlab.paper.scanning import experiment, plan
from nuksmlab.paper.scanning import section as scanning
from nuksmlab.paper.scanning.records import Observed, Result, Run, Work

HARDWARE = model.read_hardware(model.PAPERS_MACHINE)
PAGES = 1000
# Of the first tenant's 2048 pages, on its node; who is first has none in the end.
NEAR = {"first": 0, "fair": 1000, "priority": 2000}


def counts(microseconds: float) -> Counts:
    """For each page, all of it computing."""
    instructions = int(PAGES * microseconds * 1e3 * HARDWARE.ghz)
    return {
        "tenant": 0,
        "node": 0,
        "instructions": instructions,
        "loads": 0,
        "stores": 0,
        "l1_misses": 0,
        "local": 0,
        "remote": 0,
        "elsewhere": 0,
        "by_node": [0, 0],
    }


def observed(run: Run) -> Observed:
    near = NEAR[run["placement"]]
    return {
        "run": run,
        "merging": PAGES,
        "scans": 2,
        "resting": PAGES,
        "merged": PAGES // 2,
        "pages_by_node": {"0": near, "1": 2048 - near},
    }


def results(merging: float = 10, resting: float = 1, slow: str = "") -> list[Result]:
    """So many microseconds for the slow one; 10 and 1 for the others."""
    found = []
    for number, run in enumerate(plan.runs(FULL), 1):
        pair = (merging, resting) if run["configuration"] == slow else (10, 1)
        works = (Work(PAGES, counts(pair[0])), Work(PAGES, counts(pair[1])))
        found.append(Result(observed(run), *works, f"raw/x#{number}"))
    return found


def failed(several: list[Result]) -> list[str]:
    section = scanning.section(several, HARDWARE)
    return [check.what for check in section.checks if not check.holds]


def test_goals_hold_where_placing_costs_nothing(tmp_path: Path) -> None:
    assert failed(results()) == []
    section = scanning.section(results(), HARDWARE)
    report.write(tmp_path, [section], [], {}, HARDWARE)
    _, *lines = (tmp_path / "scanning.csv").read_text().splitlines()
    assert len(lines) == 8
    first = "fair,until all is merged,48.8,1000,23000.0,0.0,0.0,10.00,1.000,"
    assert f"{first}raw/x#3 raw/x#7" in lines[4]
    assert "Each placement is run 5 times." in section.paragraphs


@pytest.mark.parametrize(
    ("merging", "resting", "phase"),
    [(12.6, 1, "until all is merged"), (10, 1.11, "ten scans more")],
)
def test_a_placement_that_costs_much_is_found_out(
    merging: float, resting: float, phase: str
) -> None:
    for name in ("fair", "priority"):
        what = f"{name}, {phase}: ksmd's time for a page, against first"
        assert failed(results(merging, resting, slow=name)) == [what]


def place(result: Result, near: int) -> None:
    result.observed["pages_by_node"] = {"0": near, "1": 2048 - near}


def test_an_engine_that_places_nothing_is_found_out() -> None:
    several = results()
    for result in several:
        place(result, NEAR["first"])
    assert failed(several) == [
        f"{name}: the first tenant's pages on its node, points off its share"
        for name in ("fair", "priority")
    ]


@pytest.mark.parametrize(
    ("name", "near"), [("fair", 910), ("fair", 1138), ("priority", 1960)]
)
def test_pages_placed_otherwise_in_one_repetition_are_found_out(
    name: str, near: int
) -> None:
    several = results()
    of_one = [one for one in several if one.observed["run"]["configuration"] == name]
    place(of_one[2], near)
    assert len(failed(several)) == 1


def test_a_lot_for_each_page_is_chance_enough() -> None:
    """Five standard deviations: 113 of 2048 pages if fair, 34 by priority."""
    several = results()
    for result in several:
        fair = result.observed["run"]["configuration"] == "fair"
        if result.observed["run"]["placement"] != "first":
            place(result, 1024 - 113 if fair else 1998 - 34)
    assert failed(several) == []


def test_one_slow_repetition_is_not_hidden_by_the_others() -> None:
    several = results()
    slow = results(20, slow="fair")
    of_fair = [n for n, one in enumerate(plan.runs(FULL)) if one["placement"] == "fair"]
    several[of_fair[2]] = slow[of_fair[2]]
    assert len(failed(several)) == 1


def test_accesses_to_no_node_are_not_taken_for_local_ones() -> None:
    several = results()
    several[3].resting.counts["local"] = 1000
    several[3].resting.counts["elsewhere"] = 2
    assert failed(several) == ["DRAM accesses to no node's memory, %"]


def test_counts_are_joined_with_what_was_observed(tmp_path: Path) -> None:
    run = plan.runs(FULL)[0]
    (tmp_path / "observed.jsonl").write_text(json.dumps(observed(run)) + "\n")
    both = "".join(f"{json.dumps(counts(each))}\n" for each in (10, 1))
    (tmp_path / counter.COUNTS).write_text(both)
    (result,) = experiment.read(tmp_path)
    assert (result.merging.counts, result.resting.counts) == (counts(10), counts(1))


def test_the_plugin_is_told_to_count_what_kernels_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accelerator, "qemu_version", lambda: "10.0.2")

    def options(*counted: str) -> str:
        return counter.qemu_options(Machine(2, 1), Caches(), Path("x"), *counted)

    assert "kernels=1" in options(counter.KERNELS)
    assert "kernels" not in options()
