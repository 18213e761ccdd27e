# SPDX-License-Identifier: GPL-2.0-only
"""Fuzzers of all kinds, several at once, each in a cgroup of its own."""

import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from nuksmlab import numa, wait
from nuksmlab.domains import Halves
from nuksmlab.fuzz.fuzzer import PROFILES, Fuzzer, Spec
from nuksmlab.tenant import TenantError

PAGES_PER_MIB = 256


@dataclass(frozen=True)
class Size:
    """Of a crowd: fuzzers on each node, first and at most, and pages of each."""

    first: int
    most: int
    pages: Sequence[int]


FEW = Size(2, 4, (256, 512, 1024))
# Of hundreds most wait for a CPU, and are somewhere in the middle of things.
MANY = Size(52, 60, (8, 16, 32))


class Counts:
    """How often each action was taken, how often in vain, and how long it took."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.seconds: dict[str, float] = defaultdict(float)

    def table(self) -> str:
        rows = [
            f"  {name:<24} {count:>7} times, {self.refused[name]:>6} refused"
            + (f", {self.seconds[name]:>5.1f} s" if name in self.seconds else "")
            for name, count in sorted(self.done.items())
        ]
        return "\n".join(rows)

    @contextmanager
    def counted(self, name: str, *legitimate: int) -> Iterator[None]:
        self.done[name] += 1
        began = time.monotonic()
        try:
            yield
        except OSError as error:
            if error.errno not in legitimate:
                raise
            self.refused[name] += 1
        self.seconds[name] += time.monotonic() - began


@dataclass(eq=False)
class Member:
    fuzzer: Fuzzer
    cgroup: Halves

    @property
    def mib(self) -> int:
        return self.fuzzer.spec.pages // PAGES_PER_MIB


class Crowd:
    """All fuzzers that live now. They act on their own from `start` to `pause`."""

    def __init__(self, choose: random.Random, counts: Counts) -> None:
        self.choose = choose
        self.counts = counts
        self.size = choose.choice((FEW, FEW, MANY))
        self.nodes = numa.online()
        self.alive: list[Member] = []
        self.started = 0

    def start(self, *nodes: int) -> None:
        """One on each of these; none acts before all of them are there."""
        for member in [self.add(node) for node in nodes]:
            member.fuzzer.go(self.choose.getrandbits(63))

    def add(self, node: int) -> Member:
        name = f"fuzz-{self.started}"
        self.started += 1
        profile, pages = (
            self.choose.choice(PROFILES),
            self.choose.choice(self.size.pages),
        )
        cgroup = Halves(name)
        cgroup.stand_back()
        spec = Spec(name, profile, pages, node, self.nodes)
        member = Member(Fuzzer(spec, cgroup.prefix()), cgroup)
        self.alive.append(member)
        return member

    def any(self) -> Member:
        return self.choose.choice(self.alive)

    def kill(self, member: Member) -> None:
        """Whatever it is doing."""
        self.alive.remove(member)
        member.cgroup.end()
        member.fuzzer.process.communicate()

    @contextmanager
    def unless_out_of_memory(self, member: Member) -> Iterator[None]:
        """Its limit may be too small for it: it is killed, and rightly so."""
        try:
            yield
        except (TenantError, OSError):
            if not member.cgroup.oom_kills():
                raise
            # It may have been a child that was killed, and this be something else.
            if member.fuzzer.process.wait(wait.HANG_SECONDS) != -signal.SIGKILL:
                raise
            self.counts.done["fuzzer out of memory"] += 1
            self.kill(member)

    def all_do(self, command: str) -> None:
        """All at the same time; raises what any of them found wrong."""
        answers = []
        for member in list(self.alive):
            with self.unless_out_of_memory(member):
                member.fuzzer.send(command)
        for member in list(self.alive):
            with self.unless_out_of_memory(member):
                answers.append((member.fuzzer, member.fuzzer.receive()))
        for fuzzer, answer in answers:
            if command == "pause":
                name = f"fuzzer: {fuzzer.spec.profile}"
                self.counts.done[name] += answer["actions"]
                self.counts.refused[name] += answer["refused"]
            fuzzer.judge(answer)

    def end(self, member: Member) -> None:
        """Lets it end by itself, with its children living or dead."""
        with self.unless_out_of_memory(member):
            member.fuzzer.quit()
            self.alive.remove(member)
            member.cgroup.end()
