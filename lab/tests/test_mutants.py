# SPDX-License-Identifier: GPL-2.0-only
"""Engines broken on purpose: that each can be made. What they break takes hours."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from gone import is_gone

from nuksmlab import kernels, paths, wait
from nuksmlab.mutants import __main__ as command
from nuksmlab.mutants.mutant import Mutant, MutantError, known, make

MUTANTS = known()


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_mutant_is_another_one(tmp_path: Path, mutant: Mutant) -> None:
    """Its text is in ours, once, and is replaced by another."""
    broken = make(mutant, tmp_path / "broken")
    ours = paths.REPOSITORY / broken.relative_to(tmp_path / "broken")
    assert broken.read_text() != ours.read_text()


def test_text_that_is_gone_is_no_mutant(tmp_path: Path) -> None:
    gone = Mutant(
        "gone", "nothing", "test_it.py", "files/mm/nuksm/policy.c", "@gone@", ""
    )
    with pytest.raises(MutantError, match="not once in"):
        make(gone, tmp_path / "broken")


def test_table_shows_who_noticed_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "OUTPUT", tmp_path)
    found = {"inputs": "0", "by": {"two nodes": [], "paper": ["fair: BTree", "CG"]}}
    (tmp_path / "by-turns.json").write_text(json.dumps(found))
    lines = command.table(MUTANTS).splitlines()
    assert lines[2].endswith("|  |  | none |  | 2: fair: BTree |")
    assert lines[3].endswith("|  |  |  |  |  |")


def test_what_is_meant_for_it_is_there() -> None:
    for mutant in MUTANTS.values():
        if mutant.package:
            continue  # cargo says that it has no such test
        file, _, name = mutant.by.partition("::")
        text = (paths.REPOSITORY / command.ENGINE_TESTS / file).read_text()
        assert not name or f"def {name}(" in text


def test_crates_tests_tell_who_noticed_and_whether_any_was_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = Mutant("it", "", "one", "it.rs", "", "", package="crate")
    failed = (
        "test a::one ... FAILED\n\ntest result: FAILED. 0 passed; 1 failed; 0 ign\n"
    )
    monkeypatch.setattr(command, "run", lambda *_: failed)
    assert command.crates_tests(mutant, tmp_path) == ["a::one"]
    passed = "test a::one ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored\n"
    monkeypatch.setattr(command, "run", lambda *_: passed)
    assert command.crates_tests(mutant, tmp_path) == []
    for none in ("error: it does not compile", "test result: ok. 0 passed; 0 failed;"):
        monkeypatch.setattr(command, "run", lambda *_, none=none: none)
        with pytest.raises(MutantError, match="was not run"):
            command.crates_tests(mutant, tmp_path)


BUILDS = """
import sys
from pathlib import Path
from nuksmlab import guard
from nuksmlab.mutants import __main__ as command
from nuksmlab.mutants.mutant import Mutant, MutantError, known, make
guard.unwind_when_terminated()
place = Path(sys.argv[1])
if sys.argv[2] == "build":
    command.kernels.build("lab", tree=place)
command.run([str(place / "kernel" / "build.sh")], place / "log")
"""


@pytest.mark.parametrize("what", ["build", "run"])
def test_what_is_built_or_run_ends_with_it(tmp_path: Path, what: str) -> None:
    pid, script = tmp_path / "pid", tmp_path / "kernel" / "build.sh"
    script.parent.mkdir()
    starts = f"sleep 1000 & echo $! >{pid}.new; mv {pid}.new {pid}; wait"
    script.write_text(f"#!/bin/sh\n{starts}\n")
    script.chmod(0o755)
    process = subprocess.Popen([sys.executable, "-c", BUILDS, tmp_path, what])
    wait.until(pid.exists, lambda: "it")
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM
    assert is_gone(int(pid.read_text()))


def test_a_test_that_is_skipped_has_noticed_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "collected 1 item\n\n======== 1 skipped in 0.19s ========\n"
    monkeypatch.setattr(command, "run", lambda *_: said)
    with pytest.raises(MutantError, match="skipped"):
        command.tests([], tmp_path / "meant", ["test_it.py"])


def test_a_goal_is_the_same_whatever_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "paper: btree, nuKSM: MiB saved: 0.88 (worst of 5), wanted at least 0.99\n"
    monkeypatch.setattr(command, "EXPERIMENTS", ("fairness",))
    monkeypatch.setattr(command, "run", lambda *_: f"{said}1 of 2 goals hold\n")
    assert command.goals(tmp_path, tmp_path) == ["btree, nuKSM: MiB saved"]


def test_an_engine_that_does_not_come_to_the_end_judges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "OUTPUT", tmp_path)
    monkeypatch.setattr(command, "judge_engine", lambda *_: {"": [command.NO_END]})
    with pytest.raises(MutantError, match="did not come to the end"):
        command.judge_as_it_is([next(iter(MUTANTS.values()))], by_all=False)


def test_what_fails_without_a_mutant_has_not_noticed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    always = ["test_it.py::test_always"]
    broken: list[str] = []

    def tests(_: command.Where, kernel: Path, *__: object) -> list[str]:
        return always + (broken if kernel.name == "broken" else [])

    monkeypatch.setattr(command, "OUTPUT", tmp_path)
    monkeypatch.setattr(command.Where, "tests", tests)
    built = tmp_path / "broken"
    monkeypatch.setattr(
        kernels,
        "build",
        lambda _, tree: built if tree else tmp_path / "ours",
    )
    mutant = next(iter(MUTANTS.values()))
    as_it_is = command.as_it_is([mutant], by_all=False)
    assert command.judge(mutant, as_it_is, by_all=False) == {command.MEANT: []}
    broken.append("test_it.py::test_it")
    assert command.judge(mutant, as_it_is, by_all=False) == {
        command.MEANT: ["test_it.py::test_it"]
    }


def test_what_was_judged_holds_until_its_own_tests_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine_tests = tmp_path / command.ENGINE_TESTS
    engine_tests.mkdir(parents=True)
    (tmp_path / "kernel").mkdir()
    for name in ("conftest.py", "test_meant.py", "test_other.py"):
        (engine_tests / name).write_text("before")
    monkeypatch.setattr(paths, "REPOSITORY", tmp_path)
    mutant = Mutant("it", "", "test_meant.py::test_it", "", "", "")

    def changes(name: str, by_all: bool) -> bool:
        before = command.inputs(mutant, by_all)
        with (engine_tests / name).open("a") as file:
            file.write("more")
        return command.inputs(mutant, by_all) != before

    assert changes("test_meant.py", by_all=False)
    assert changes("conftest.py", by_all=False)
    assert not changes("test_other.py", by_all=False)
    assert changes("test_other.py", by_all=True)


def test_what_fails_without_a_mutant_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def judge(mutants: list[Mutant], by_all: bool) -> dict[str, list[str]]:
        asked.append(([one.by for one in mutants], by_all))
        return {command.MEANT: ["test_it.py::test_always"]}

    def is_asked(*mutants: Mutant, by_all: bool = False) -> bool:
        before = len(asked)
        by = command.as_it_is(mutants, by_all)
        assert by == {command.MEANT: ["test_it.py::test_always"]}
        return len(asked) > before

    monkeypatch.setattr(command, "OUTPUT", tmp_path)
    monkeypatch.setattr(command, "judge_as_it_is", judge)
    monkeypatch.setattr(paths, "REPOSITORY", tmp_path)
    engine_test = tmp_path / command.ENGINE_TESTS / "test_it.py"
    engine_test.parent.mkdir(parents=True)
    one, other = (Mutant(name, "", f"{name}.py", "", "", "") for name in "ab")
    assert is_asked(one, other)
    assert not is_asked(one) and not is_asked(other)
    engine_test.write_text("changed")
    assert is_asked(one)
    assert not is_asked(one)
    assert is_asked(other)
    assert is_asked(other, by_all=True)
