# SPDX-License-Identifier: GPL-2.0-only
"""Runs the tests' parts side by side, twice as many as there are CPUs.

What a part says is passed on line by line, and kept in build/test/PART.txt. How long
each one took is kept in build/test/seconds-SUITE.json, for the next time's estimate. A
part that fails ends those that need it; the others go on.
"""

import argparse
import collections
import contextlib
import io
import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from nuksmlab import guard, paths
from nuksmlab.alone import HEARS_SECONDS, alone
from nuksmlab.suite import plan
from nuksmlab.suite.parts import SUITES, Part

OUTPUT = paths.BUILD / "test"
# Longer than what parts have started has itself for those whom it ends.
END_SECONDS = 75.0
REPORT_SECONDS = 60.0
# Shown again of a part that failed, at the very end, where everybody looks.
LAST_LINES = 40
MEMORY = Path("/proc/meminfo")
OWN_CGROUP = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")
# Of memory, what the largest part needs.
PART_GIB = 5
# Variables that parts set, or that change what they do, and that whoever starts all of
# them may have in the environment: the Makefile's, compilers' and pytest's.
SETTINGS = (
    *("ALL", "ARCH", "CONFIG", "CONFIG_FILE", "CPUS", "DESTDIR", "EXPERIMENT"),
    *("HARDWARE", "HOST", "KERNEL", "NAME", "NODES", "PREFIX", "QUICK", "SECONDS"),
    *("SEED", "VERSION", "CFLAGS", "PYTEST_ADDOPTS"),
    # They have what make was told.
    *("MAKEFLAGS", "GNUMAKEFLAGS", "MAKEFILES", "MAKEOVERRIDES"),
)

Line = tuple[str, bytes]


def clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02}"


def available_bytes(meminfo: str) -> int:
    """Free memory, and caches that would be given up for what needs it."""
    fields = dict(line.split(":", 1) for line in meminfo.splitlines())
    return int(fields["MemAvailable"].split()[0]) << 10


def limits(own: Path = OWN_CGROUP, cgroups: Path = CGROUPS) -> tuple[float, float]:
    """Of its cgroup (v2) and those above, as containers have: bytes, and CPUs."""
    memory = cpus = math.inf
    path = ""
    with contextlib.suppress(OSError):  # of a kernel without cgroups
        path = own.read_text().partition("0::/")[2].split("\n")[0]
    for cgroup in ((below := cgroups / path), *below.parents):
        with contextlib.suppress(OSError, ValueError):
            memory = min(memory, float((cgroup / "memory.max").read_text()))
        with contextlib.suppress(OSError, ValueError):
            quota, period = (cgroup / "cpu.max").read_text().split()
            cpus = min(cpus, float(quota) / float(period))
        if cgroup == cgroups:
            break
    return memory, cpus


def at_once() -> int:
    """Twice as many as CPUs: parts wait for ksmd's pauses. As memory allows."""
    may_have, quota = limits()
    gib = min(available_bytes(MEMORY.read_text()), may_have) / (1 << 30)
    cpus = min(len(os.sched_getaffinity(0)), quota)
    return max(1, int(min(2 * cpus, gib / PART_GIB)))


def last_lines(name: str) -> list[str]:
    """Of a part: there its tests say which failed."""
    with (OUTPUT / f"{name}.txt").open(errors="replace") as kept:
        return list(collections.deque(kept, LAST_LINES))


class Running:
    """A part, which ends when this process does, with all that it has started."""

    def __init__(self, part: Part, lines: "queue.Queue[Line]", lock: int) -> None:
        self.part = part
        self.kept = (OUTPUT / f"{part.name}.txt").open("wb", buffering=0)
        self.began = time.monotonic()
        self.process = guard.start(
            ["make", "--no-print-directory", *part.arguments, "READY="],
            grace=END_SECONDS,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            environment={k: v for k, v in os.environ.items() if k not in SETTINGS},
            held=[lock],
        )
        threading.Thread(target=self._pass_on, args=(lines,), daemon=True).start()

    def _pass_on(self, lines: "queue.Queue[Line]") -> None:
        assert self.process.stdout
        # Closed here: as a file is freed, what a signal raises would be lost.
        with self.kept, self.process.stdout:
            for line in self.process.stdout:
                lines.put((self.part.name, line))
                with contextlib.suppress(OSError):  # on a full disk: it was shown
                    self.kept.write(line)
        self.process.wait()
        lines.put((self.part.name, b""))

    def ran(self) -> float:
        return time.monotonic() - self.began


class Suite:
    """Its parts, of which so many run at once, and the lock of where they write."""

    def __init__(self, name: str, at_once: int, lock: int) -> None:
        self.name, self.at_once, self.lock = name, at_once, lock
        self.parts = SUITES[name]
        # Of this suite: another one's parts may have more or fewer tests.
        self.seconds = OUTPUT / f"seconds-{name}.json"
        self.last: dict[str, float] = {}
        with contextlib.suppress(FileNotFoundError, ValueError):
            self.last = json.loads(self.seconds.read_text())
        self.running: dict[str, Running] = {}
        self.passed: dict[str, float] = {}
        self.failed: dict[str, float] = {}
        self.lines: queue.Queue[Line] = queue.Queue()
        self.width = max(len(part.name) for part in self.parts)

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
            self.running[part.name] = Running(part, self.lines, self.lock)

    def ended(self, name: str) -> None:
        part = self.running.pop(name)
        guard.end(part.process)  # of a guard that was killed, what it has left
        status, took = part.process.returncode, part.ran()
        if status == 0:
            self.passed[name] = self.last[name] = took
            with contextlib.suppress(OSError):
                new = self.seconds.with_suffix(".new")
                new.write_text(json.dumps(self.last, indent=1) + "\n")
                new.replace(self.seconds)
            self.say(name, f"passed in {clock(took)}")
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
        late = [
            name
            for name, seconds in ran.items()
            if seconds > self.last.get(name, seconds)
        ]
        more = (
            f", if not more: {', '.join(late)} took less the last time" if late else ""
        )
        return (
            f"running: {', '.join(self.running) or 'nothing'};"
            f" to come: {', '.join(to_come) or 'nothing'};"
            f" {'about' if known else 'very roughly'} {clock(left)} left"
            f"{more}"
        )

    def run(self) -> None:
        report = time.monotonic() + REPORT_SECONDS
        self.begin()
        while self.running:
            try:
                name, line = self.lines.get(timeout=HEARS_SECONDS)
            except queue.Empty:
                name, line = "", b""
            if line:
                self.say(name, line.decode(errors="replace").rstrip("\n"))
            elif name:
                self.ended(name)
                self.begin()
                self.say("", self.report())
            if time.monotonic() > report:
                report = time.monotonic() + REPORT_SECONDS
                self.say("", self.report())

    def end(self) -> None:
        """Whatever still runs, and all that it has started."""
        processes = [part.process for part in self.running.values()]
        for process in processes:
            assert process.stdin
            process.stdin.close()  # all at the same time
        for process in processes:
            guard.end(process)

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
                ended = "ended  " if part.name in self.running else "not run"
                print(f"  {ended}         {part.name}")
        for name in self.failed:
            print(f"\nwhat {name} said at the end:")
            print("".join(last_lines(name)), end="")
        return 0 if len(self.passed) == len(self.parts) else 1


def run(suite: Suite) -> int:
    began = time.monotonic()

    def verdict() -> int:
        status = suite.verdict()
        print(f"{suite.name}: {clock(time.monotonic() - began)}", flush=True)
        return status

    try:
        suite.run()
    except BaseException:
        suite.end()
        # Who reads it may never do so: whoever waits for that may be ended.
        for number in guard.ENDS:
            signal.signal(number, signal.SIG_DFL)
        with contextlib.suppress(OSError):  # nobody may read it any more
            verdict()
        raise
    return verdict()


def main() -> int:
    parser = argparse.ArgumentParser(prog="nuksmlab.suite", description=__doc__)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument(
        "--at-once",
        type=int,
        help="so many parts; default: as CPUs and memory allow then",
    )
    options = parser.parse_args()
    guard.unwind_when_terminated()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
        # Else what a slow reader has no room for would be an error.
        os.set_blocking(sys.stdout.fileno(), True)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    try:
        # Of a run that was killed, parts may be ending.
        with alone(OUTPUT) as lock:
            return run(Suite(options.suite, options.at_once or at_once(), lock))
    except OSError as error:  # of where this is written to, most likely
        print(f"tests: {error}; all parts were ended", file=sys.stderr)
        sys.stdout = None  # what it still has cannot be written either
        return 1


if __name__ == "__main__":
    sys.exit(main())
