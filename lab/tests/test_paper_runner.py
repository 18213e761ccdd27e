# SPDX-License-Identifier: GPL-2.0-only
"""What was run is kept, and run again only where something changed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nuksmlab import machine
from nuksmlab.counter import Caches
from nuksmlab.machine import Machine
from nuksmlab.paper import runner
from nuksmlab.paper.extent import OFF, QUICK, STOCK, Part, trial
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


def test_what_lacks_nodes_is_not_run(
    part: Part, where: Nowhere, tmp_path: Path
) -> None:
    runner.run(replace(part, machine=Machine(4, 64)), where, tmp_path / "x")
    assert where.runs == 0


def boot_once(kept: Path, inputs: str, program: Path) -> bool:
    """Whether it was booted; a boot adds to what the one before has recorded."""
    booted = []

    def boot() -> None:
        booted.append(True)
        with (kept / "x.jsonl").open("a") as lines:
            lines.write(f"{inputs}\n")

    facts: runner.Facts = {
        "inputs": inputs,
        "command": "",
        "machine": "",
        "kernel": "",
        "programs": [program],
        "expected": {},
    }
    runner.run_once(kept, {}, facts, boot)
    return bool(booted)


def test_a_boot_without_trials_is_not_run_again(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("")
    kept = tmp_path / "x"
    assert boot_once(kept, "a", program)
    assert not boot_once(kept, "a", program)
    assert boot_once(kept, "b", program)
    assert (kept / "x.jsonl").read_text() == "b\n"
