# SPDX-License-Identifier: GPL-2.0-only
"""Runs the tests' parts side by side, as many as there are CPUs.

What a part says is passed on line by line, and kept in build/test/PART.txt. How long
each one took is kept in build/test/seconds.json, for the next time's estimate. A part
that fails ends those that need it; the others go on.
"""

import argparse
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from nuksmlab import machine, paths
from nuksmlab.suite import plan
from nuksmlab.suite.parts import SUITES, Part

OUTPUT = paths.BUILD / "test"
SECONDS = OUTPUT / "seconds.json"
END_SECONDS = 30.0
REPORT_SECONDS = 60.0

Line = tuple[str, bytes]


def clock(seconds: float) -> str:
    return f"{seconds // 60:.0f}:{seconds % 60:02.0f}"


class Running:
    """A part, in a process group of its own, so that all of it can be ended."""

    def __init__(self, part: Part, lines: "queue.Queue[Line]") -> None:
        self.part = part
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            ["make", "--no-print-directory", *part.arguments, "READY="],
            cwd=paths.REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        threading.Thread(target=self._pass_on, args=(lines,), daemon=True).start()

    def _pass_on(self, lines: "queue.Queue[Line]") -> None:
        assert self.process.stdout
        with (OUTPUT / f"{self.part.name}.txt").open("wb", buffering=0) as kept:
            for line in self.process.stdout:
                kept.write(line)
                lines.put((self.part.name, line))
        self.process.wait()
        lines.put((self.part.name, b""))

    def ran(self) -> float:
        return time.monotonic() - self.began

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class Suite:
    def __init__(self, parts: Sequence[Part], at_once: int) -> None:
        self.parts, self.at_once = parts, at_once
        self.last: dict[str, float] = {}
        if SECONDS.exists():
            self.last = json.loads(SECONDS.read_text())
        self.running: dict[str, Running] = {}
        self.passed: dict[str, float] = {}
        self.failed: dict[str, float] = {}
        self.lines: queue.Queue[Line] = queue.Queue()
        self.width = max(len(part.name) for part in parts)

    def say(self, name: str, text: str) -> None:
        print(f"{name:{self.width}} | {text}", flush=True)

    def begin(self) -> None:
        begun = {*self.running, *self.passed, *self.failed}
        for part in plan.ready(self.parts, begun, self.passed):
            if len(self.running) == self.at_once:
                break
            known = self.last.get(part.name)
            took = f"; it took {clock(known)} the last time" if known else ""
            self.say(part.name, f"begins{took}")
            self.running[part.name] = Running(part, self.lines)

    def ended(self, name: str) -> None:
        part = self.running.pop(name)
        status, took = part.process.returncode, part.ran()
        if status == 0:
            self.passed[name] = self.last[name] = took
            SECONDS.write_text(json.dumps(self.last, indent=1) + "\n")
            self.say(name, f"passed in {clock(took)}; {self.report()}")
        else:
            self.failed[name] = took
            self.say(name, f"FAILED in {clock(took)}, with status {status}")

    def report(self) -> str:
        ran = {name: part.ran() for name, part in self.running.items()}
        done = {*self.passed, *self.failed, *plan.needed_by(self.parts, self.failed)}
        left = plan.seconds_left(self.parts, ran, done, self.last, self.at_once)
        to_come = [
            part.name
            for part in self.parts
            if part.name not in done and part.name not in self.running
        ]
        known = all(part.name in self.last for part in self.parts)
        return (
            f"running: {', '.join(self.running) or 'nothing'};"
            f" to come: {', '.join(to_come) or 'nothing'};"
            f" {'about' if known else 'very roughly'} {clock(left)} left"
        )

    def run(self) -> None:
        report = time.monotonic() + REPORT_SECONDS
        self.begin()
        while self.running:
            try:
                name, line = self.lines.get(timeout=REPORT_SECONDS)
            except queue.Empty:
                name, line = "", b""
            if line:
                self.say(name, line.decode(errors="replace").rstrip("\n"))
            elif name:
                self.ended(name)
                self.begin()
            if time.monotonic() > report:
                report = time.monotonic() + REPORT_SECONDS
                self.say("", self.report())

    def end(self) -> None:
        """Whatever still runs, and all that it has started."""
        for part in self.running.values():
            part.signal(signal.SIGTERM)
        end = time.monotonic() + END_SECONDS
        for part in self.running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                part.process.wait(max(0.0, end - time.monotonic()))
            part.signal(signal.SIGKILL)

    def verdict(self) -> int:
        print()
        for part in self.parts:
            if part.name in self.passed:
                print(f"  passed  {clock(self.passed[part.name]):>6}  {part.name}")
            elif part.name in self.failed:
                kept = (OUTPUT / f"{part.name}.txt").relative_to(paths.REPOSITORY)
                print(
                    f"  FAILED  {clock(self.failed[part.name]):>6}  {part.name}: {kept}"
                )
            else:
                print(f"  not run         {part.name}")
        return 0 if len(self.passed) == len(self.parts) else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="nuksmlab.suite", description=__doc__)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument(
        "--at-once",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="so many parts; default: the CPUs that this process may use",
    )
    options = parser.parse_args()
    machine.end_machines_when_terminated()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    suite = Suite(SUITES[options.suite], options.at_once)
    began = time.monotonic()
    try:
        suite.run()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        suite.end()
    status = suite.verdict()
    print(f"{options.suite}: {clock(time.monotonic() - began)}")
    return status


if __name__ == "__main__":
    sys.exit(main())
