# SPDX-License-Identifier: GPL-2.0-only
"""The order of the tests' parts; what is left of them when they are ended."""

import fcntl
import itertools
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from termios import FIONREAD
from typing import IO
from unittest import mock

import pytest

from nuksmlab import guard, paths, wait
from nuksmlab.alone import alone
from nuksmlab.mutants.mutant import AS_IT_IS, known
from nuksmlab.suite import __main__ as suite
from nuksmlab.suite import plan
from nuksmlab.suite.parts import QUICK, SUITES, Part

PARTS = (
    Part("build", ("build",)),
    Part("kernel", ("kernel",)),
    Part("guest", ("guest",), after=("build",)),
    Part("engine", ("engine",), after=("build", "kernel")),
)


ENGINE_TESTS = "lab/engine_tests"
ALL_ENGINE_TESTS = {
    one.name for one in (paths.REPOSITORY / ENGINE_TESTS).glob("test_*.py")
}


def names(parts: list[Part]) -> list[str]:
    return [part.name for part in parts]


@pytest.mark.parametrize("name", SUITES)
def test_what_a_part_needs_is_in_the_suite_and_comes_before(name: str) -> None:
    passed: list[str] = []
    while more := plan.ready(SUITES[name], passed, passed):
        passed += names(more)
    assert sorted(passed) == sorted(part.name for part in SUITES[name])


def test_caches_count_as_memory_for_parts() -> None:
    meminfo = "MemTotal: 24676924 kB\nMemFree: 1048576 kB\nMemAvailable: 20971520 kB\n"
    assert suite.available_bytes(meminfo) == 20 << 30


def test_a_container_has_what_it_may_use(tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "self").write_text("1:cpu:/other\n0::/outer/inner\n")

    def limits() -> tuple[float, float]:
        return suite.limits(tmp_path / "self", tmp_path)

    assert limits() == (math.inf, math.inf)
    (inner / "memory.max").write_text("max\n")
    (inner / "cpu.max").write_text("max 100000\n")
    assert limits() == (math.inf, math.inf)
    (outer / "memory.max").write_text(f"{8 << 30}\n")
    (inner / "memory.max").write_text(f"{9 << 30}\n")
    (outer / "cpu.max").write_text("150000 100000\n")
    assert limits() == (8 << 30, 1.5)
    (tmp_path / "self").unlink()
    assert limits() == (math.inf, math.inf)


def test_no_more_parts_run_than_a_container_has_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(suite, "available_bytes", lambda _: 1 << 40)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(16))
    for limits, wanted in (
        ((math.inf, math.inf), 32),
        ((12 << 30, math.inf), 2),
        ((math.inf, 1.5), 3),
        ((1 << 30, 0.2), 1),
    ):
        monkeypatch.setattr(suite, "limits", lambda limits=limits: limits)
        assert suite.at_once() == wanted


def test_the_large_suite_has_all_of_the_small_one_and_what_that_leaves_out() -> None:
    small = [part.arguments for part in SUITES["test"]]
    assert any(QUICK in arguments for arguments in small)
    whole = {tuple(one for one in arguments if one != QUICK) for arguments in small}
    assert whole <= {part.arguments for part in SUITES["test-all"]}


def test_no_mutant_of_the_engine_is_judged_before_the_engine_as_it_is() -> None:
    first, *others = SUITES["mutants"]
    assert first.name == AS_IT_IS
    after = {part.name for part in others if part.after == (AS_IT_IS,)}
    assert after == {one.name for one in known().values() if not one.package}


def engine_tests_of(part: Part) -> set[str]:
    """Names of the files that it runs, by what make would do."""
    make = ["make", "--dry-run", "READY=", *part.arguments]
    words = subprocess.run(
        make, cwd=paths.REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.split()
    named: set[str] = set()
    ignored: set[str] = set()
    for before, word in itertools.pairwise(words):
        if word.startswith(f"{ENGINE_TESTS}/test_"):
            (ignored if before == "--ignore" else named).add(Path(word).name)
    return ALL_ENGINE_TESTS - ignored if ENGINE_TESTS in words else named


@pytest.mark.parametrize("newer", [False, True])
def test_each_file_of_the_engines_tests_is_run_on_two_nodes(*, newer: bool) -> None:
    """By a part of its own, or by the one for all that have none."""
    others = [f"engine-{name}" for name in ("um", "4", "tiers", "debug")]
    run = [
        engine_tests_of(part)
        for part in SUITES["test-all"]
        if part.arguments[0].startswith("engine-")
        and part.arguments[0] not in others
        and ("VERSION=7.3" in part.arguments) == newer
    ]
    assert ALL_ENGINE_TESTS - set().union(*run) == {"test_selftests.py"}


def test_a_part_begins_when_all_that_it_needs_has_passed() -> None:
    assert names(plan.ready(PARTS, [], [])) == ["build", "kernel"]
    assert names(plan.ready(PARTS, ["build", "kernel"], ["build"])) == ["guest"]
    both = ["build", "kernel"]
    assert names(plan.ready(PARTS, both, both)) == ["guest", "engine"]


def test_what_needs_a_part_that_failed_is_lost() -> None:
    assert plan.needed_by(PARTS, ["kernel"]) == ["engine"]
    assert plan.needed_by(PARTS, ["build"]) == ["guest", "engine"]


def test_the_time_that_is_left_is_that_of_the_last_run() -> None:
    last = {"build": 10.0, "kernel": 30.0, "guest": 40.0, "engine": 50.0}
    assert plan.seconds_left(PARTS, {}, [], last, 1) == 130
    # The guest from 10 to 50, the kernel to 30, then the engine to 80.
    assert plan.seconds_left(PARTS, {}, [], last, 2) == 80
    running = {"guest": 15.0, "kernel": 28.0}
    assert plan.seconds_left(PARTS, running, ["build"], last, 2) == 52
    # Slower than it was: it may end at any moment.
    assert plan.seconds_left(PARTS[:1], {"build": 99.0}, [], last, 2) == 0


def test_a_part_that_takes_longer_than_the_last_time_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(suite, "OUTPUT", tmp_path)
    monkeypatch.setitem(SUITES, "test", PARTS)
    some = suite.Suite("test", 2, lock=-1)
    some.last = {part.name: 10.0 for part in PARTS}
    some.running = {"build": mock.Mock(ran=lambda: 9.0)}
    assert some.report().endswith("about 0:20 left")
    some.running = {"build": mock.Mock(ran=lambda: 11.0)}
    assert some.report().endswith("if not more: build took less the last time")


def test_no_variable_that_the_makefile_asks_for_reaches_parts() -> None:
    makefile = (paths.REPOSITORY / "Makefile").read_text()
    asked = set(re.findall(r"\$\(([A-Z_]+)\)", makefile))
    own = set(re.findall(r"^(?:export )?([A-Z_]+) :=", makefile, re.MULTILINE))
    assert asked - own - {"CURDIR", "MAKE", "SUDO_USER"} <= {*suite.SETTINGS}


SPOKEN = """
import os, signal, sys, time
from nuksmlab.suite import __main__ as suite
from nuksmlab.suite.parts import Part, SUITES
from pathlib import Path
place = Path(sys.argv[1])
suite.OUTPUT = place
suite.paths.REPOSITORY = place
SUITES["test"] = (Part("good", ("good",)), Part("bad", ("bad",)),
                  Part("lost", ("good",), after=("bad",)))
sys.argv = ["suite", "test", *sys.argv[2:]]
sys.exit(suite.main())
"""
MAKEFILE = """
good:
	@echo one && echo two && {good}
bad:
	@echo three && {bad}
"""


def started(
    place: Path,
    bad: str,
    output: int | IO[str] = subprocess.PIPE,
    good: str = "true",
) -> subprocess.Popen[str]:
    (place / "Makefile").write_text(MAKEFILE.format(bad=bad, good=good))
    return subprocess.Popen(
        [sys.executable, "-c", SPOKEN, place, "--at-once", "2"],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_others_go_on_when_a_part_fails(tmp_path: Path) -> None:
    said, _ = (process := started(tmp_path, "false")).communicate()
    assert process.returncode == 1
    assert "good | two\n" in said
    assert "bad  | FAILED" in said
    assert "not run         lost" in said
    assert (tmp_path / "good.txt").read_text() == "one\ntwo\n"
    assert "what bad said at the end:\nthree\n" in said


def test_a_full_disk_is_an_error_that_says_so(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        _, said = (process := started(tmp_path, "false", full)).communicate()
    assert process.returncode == 1
    assert said == ("tests: [Errno 28] No space left on device; all parts were ended\n")


def test_nothing_is_lost_on_a_slow_reader_who_wants_not_to_be_waited_for(
    tmp_path: Path,
) -> None:
    reader, writer = os.pipe2(os.O_NONBLOCK)
    with os.fdopen(writer, "w") as output:
        process = started(tmp_path, "seq 30000", output)
    kept = tmp_path / "bad.txt"
    wait.until(
        lambda: (
            process.poll() is not None
            or (kept.exists() and kept.read_text().count("\n") > 30000)
        ),
        lambda: "the part",
    )
    os.set_blocking(reader, True)
    with os.fdopen(reader) as said:
        lines = said.readlines()
    assert process.wait() == 0
    assert sum(line.startswith("bad  | ") for line in lines) > 30000


def test_who_comes_second_waits(tmp_path: Path) -> None:
    with alone(tmp_path):
        process = started(tmp_path, "true")
        assert process.stdout
        waits = f"waiting for who else writes to {tmp_path}\n"
        assert process.stdout.readline() == waits
    process.communicate()
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_who_waits_can_be_ended(tmp_path: Path, number: signal.Signals) -> None:
    with alone(tmp_path):
        process = started(tmp_path, "true")
        assert process.stdout
        process.stdout.readline()
        process.send_signal(number)
        assert process.communicate() == ("", "")
    assert process.returncode == 128 + number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_what_had_failed_is_told_when_it_is_ended(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = started(tmp_path, "false", good="exec sleep 1000")
    assert process.stdout
    while "bad  | FAILED" not in process.stdout.readline():
        pass
    process.send_signal(number)
    said, _ = process.communicate()
    assert process.returncode == 128 + number
    assert re.search(r"^  FAILED +\d+:\d\d  bad: bad.txt$", said, re.MULTILINE)
    assert "  ended           good\n" in said
    assert "what bad said at the end:\nthree\n" in said


def test_who_ends_it_and_reads_no_more_is_no_full_disk(tmp_path: Path) -> None:
    """As with Ctrl-C, where what reads it through a pipe is ended as well."""
    process = started(tmp_path, "false", good="exec sleep 1000")
    assert process.stdout
    assert process.stderr
    while "running: good;" not in process.stdout.readline():
        pass  # then it waits
    process.stdout.close()
    process.send_signal(signal.SIGINT)
    assert process.wait() == 128 + signal.SIGINT
    assert "all parts were ended" not in process.stderr.read()


def test_who_waits_for_a_reader_at_its_end_can_be_ended(tmp_path: Path) -> None:
    process = started(tmp_path, "exec yes", good="exec sleep 1000")
    assert process.stdout
    pipe = process.stdout.fileno()
    full = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)

    def unread() -> int:
        return int.from_bytes(fcntl.ioctl(pipe, FIONREAD, bytes(4)), "little")

    wait.until(lambda: unread() > full - 4096, lambda: "a full pipe")
    process.terminate()
    wait.until(lambda: guard.descendants(process.pid) == [], lambda: "the parts' end")

    def has_ended() -> bool:
        process.terminate()
        return process.poll() is not None

    wait.until(has_ended, lambda: "its end")  # at first it may not hear of it
    assert process.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_nothing_is_left_when_it_is_ended(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = started(tmp_path, "echo $$$$ > pid && sleep 1000 & wait")
    pid = tmp_path / "pid"
    wait.until(lambda: pid.exists() and pid.read_text() != "", lambda: "the part")
    process.send_signal(number)
    process.communicate()
    assert process.returncode == 128 + number
    wait.until(
        lambda: not Path(f"/proc/{int(pid.read_text())}").exists(),
        lambda: "the end of the part",
    )
