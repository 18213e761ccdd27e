# SPDX-License-Identifier: GPL-2.0-only
"""What was run is kept, and run again only where something changed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nuksmlab import machine
from nuksmlab.counter import Caches
from nuksmlab.machine import Machine
from nuksmlab.paper import model, runner
from nuksmlab.paper.experiments import Trials
from nuksmlab.paper.extent import OFF, QUICK, STOCK, Part, trial
from nuksmlab.paper.merging import plan
from nuksmlab.paper.runner import Boot, Facts, made_from
from nuksmlab.paper.section import Section
from nuksmlab.paper.trial import places


class Nowhere:
    """Runs nothing, and says how often it was asked to."""

    kernel = "made-up"
    option = ""

    def __init__(self, program: Path) -> None:
        program.touch()
        self.programs = (program,)
        self.runs = 0
        self.fails = False

    def describe(self, part: Part) -> str:
        return f"{part.machine.nodes} nodes"

    def lacks(self, part: Part) -> str | None:
        return None if part.machine.nodes == 2 else "needs 2 nodes"

    def run(self, part: Part, kept: Path) -> None:
        self.runs += 1
        if self.fails:
            raise machine.MachineError(part.name)
        (kept / "observed.jsonl").write_text("")


@pytest.fixture
def where(tmp_path: Path) -> Nowhere:
    return Nowhere(tmp_path / "program")


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Part:
    monkeypatch.setattr(runner, "run_here", lambda *_: "abc")
    trials = [trial(QUICK, "btree", OFF, places([0, 1]))]
    return Part("x-btree", Machine(2, 64), Caches(), trials)


def test_a_complete_part_is_not_run_again(
    part: Part, where: Nowhere, tmp_path: Path
) -> None:
    runner.run(part, where, tmp_path / "x")
    runner.run(part, where, tmp_path / "x")
    assert where.runs == 1
    assert json.loads((tmp_path / "x" / "plan.json").read_text()) == part.trials
    done = runner.completed(tmp_path / "x")
    assert done is not None
    assert done["command"] == "make paper EXPERIMENT=x"
    assert list(done["expected"].values()) == ["abc"]


def test_an_interrupted_part_is_run_again(
    part: Part, where: Nowhere, tmp_path: Path
) -> None:
    where.fails = True
    with pytest.raises(machine.MachineError):
        runner.run(part, where, tmp_path / "x")
    where.fails = False
    runner.run(part, where, tmp_path / "x")
    assert where.runs == 2


def test_another_plan_or_program_is_run_again(
    part: Part, where: Nowhere, tmp_path: Path
) -> None:
    runner.run(part, where, tmp_path / "x")
    other = replace(part, trials=[trial(QUICK, "btree", STOCK, places([0, 1]))])
    runner.run(other, where, tmp_path / "x")
    where.programs[0].write_text("new")
    runner.run(other, where, tmp_path / "x")
    assert where.runs == 3


def test_what_other_trials_found_is_not_shown(
    part: Part, where: Nowhere, tmp_path: Path
) -> None:
    runner.run(part, where, tmp_path / part.name)
    other = replace(part, trials=[trial(QUICK, "btree", STOCK, places([0, 1]))])
    experiment = Trials("x", lambda _: [other], lambda *_: Section("", []))
    hardware = model.read_hardware(model.PAPERS_MACHINE)
    found = experiment.gather(tmp_path, QUICK, where, hardware)
    assert found.section is None
    assert found.missing == ["x-btree (other trials were run)"]


def test_what_lacks_nodes_is_not_run(
    part: Part, where: Nowhere, tmp_path: Path
) -> None:
    runner.run(replace(part, machine=Machine(4, 64)), where, tmp_path / "x")
    assert where.runs == 0


class Runs:
    """Counts them; writes what a guest would, or fails."""

    def __init__(self, raw: Path) -> None:
        self.raw = raw
        self.count = 0
        self.fails = False

    def __call__(self, kept: Path) -> None:
        self.count += 1
        if self.fails:
            raise machine.MachineError("made up")
        (kept / "observed.jsonl").write_text("")


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    program = tmp_path / "program"
    program.touch()
    expected = {"btree": "abc"}
    return Facts(
        "some", "make paper", "made-up", "made-up", [program], lambda: expected
    )


def test_a_complete_boot_is_not_run_again(facts: Facts, tmp_path: Path) -> None:
    runs = Runs(tmp_path / "raw")
    runner.run_once(runs.raw, Boot([1, 2], facts, runs))
    runner.run_once(runs.raw, Boot([1, 2], facts, runs))
    assert runs.count == 1
    done = runner.completed(runs.raw)
    assert done is not None
    assert done["expected"] == {"btree": "abc"}
    assert json.loads((runs.raw / "plan.json").read_text()) == [1, 2]


def test_an_interrupted_boot_is_run_again(facts: Facts, tmp_path: Path) -> None:
    runs = Runs(tmp_path / "raw")
    runner.run_once(runs.raw, Boot([1], facts, runs))
    runs.fails = True
    with pytest.raises(machine.MachineError):
        runner.run_once(runs.raw, Boot([1], replace(facts, inputs="other"), runs))
    assert runner.completed(runs.raw) is None
    runs.fails = False
    runner.run_once(runs.raw, Boot([1], facts, runs))
    assert runs.count == 3


def test_a_boot_whose_record_was_cut_off_is_run_again(
    facts: Facts, tmp_path: Path
) -> None:
    runs = Runs(tmp_path / "raw")
    runner.run_once(runs.raw, Boot([1], facts, runs))
    (runs.raw / "complete.json").write_text('{"inputs": "so')
    runner.run_once(runs.raw, Boot([1], facts, runs))
    assert runs.count == 2


def test_what_a_boot_is_made_from_is_known(tmp_path: Path) -> None:
    runs, program = plan.copies(QUICK), tmp_path / "program"
    program.touch()
    before = made_from([runs, 1], ["ksm.py"], [program])
    assert before == made_from([runs, 1], ["ksm.py"], [program])
    assert before != made_from([runs[1:], 1], ["ksm.py"], [program])
    assert before != made_from([runs, 2], ["ksm.py"], [program])
    assert before != made_from([runs, 1], ["numa.py"], [program])
    program.write_text("new")
    assert before != made_from([runs, 1], ["ksm.py"], [program])


def test_nothing_is_added_to_what_was_recorded_before(
    facts: Facts, tmp_path: Path
) -> None:
    kept = tmp_path / "raw"
    for inputs in ("a", "b"):

        def boot(kept: Path, inputs: str = inputs) -> None:
            with (kept / "x.jsonl").open("a") as lines:
                lines.write(f"{inputs}\n")

        runner.run_once(kept, Boot({}, replace(facts, inputs=inputs), boot))
    assert (kept / "x.jsonl").read_text() == "b\n"
