# SPDX-License-Identifier: GPL-2.0-only
"""Tenants of all kinds that do what comes into their minds, several at once."""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nuksmlab import numa, stress
from nuksmlab.tenant import Spec, Tenant, TenantError

MIXES: list[dict[str, int]] = [
    {"equal": 100},
    {"equal": 0, "same": 100},
    {"equal": 0, "alike": 50, "changing": 50},
    {"equal": 30, "same": 30, "zero": 30, "private": 10},
    {"equal": 60, "private": 20, "zero": 10, "changing": 10},
]
COMMANDS = (
    *("verify", "touch", "write 64", "restore", "change", "fork", "churn"),
    *("remap", "lock", "unlock", "huge", "pageout", "merge", "unmerge"),
)


class Counts:
    """How often each action was taken, how often in vain, and how long it took."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.seconds: dict[str, float] = defaultdict(float)

    def table(self) -> str:
        rows = [
            f"  {name:<24} {count:>5} times, {self.refused[name]:>4} refused"
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
    """A tenant, and what it was told to do."""

    tenant: Tenant
    cgroup: stress.Cgroup
    churning: bool = False
    locked: bool = False
    limited: bool = False


class Crowd:
    """All tenants that live now; most of what they do, they do together."""

    def __init__(self, choose: random.Random, counts: Counts) -> None:
        self.choose = choose
        self.counts = counts
        self.nodes = numa.online()
        self.alive: list[Member] = []
        self.busy: list[tuple[Member, str]] = []
        self.started = 0

    def start(self, node: int) -> None:
        name = f"vm-{self.started}"
        self.started += 1
        mix = self.choose.choice(MIXES)
        seed, mib = self.choose.choice((1, 2)), self.choose.choice((2, 4, 8))
        cgroup = stress.Cgroup(name)
        spec = Spec(name, node, mib, seed=seed, madvised=True, **mix)
        tenant = Tenant(spec, cgroup.prefix())
        self.alive.append(Member(tenant, cgroup))

    def any(self) -> Member:
        return self.choose.choice(self.alive)

    def kill(self, member: Member) -> None:
        """Whatever it is doing."""
        self.alive.remove(member)
        self.busy = [entry for entry in self.busy if entry[0] is not member]
        member.cgroup.end()
        member.tenant.process.communicate()

    def quit(self, member: Member) -> None:
        member.tenant.quit()
        self.alive.remove(member)
        member.cgroup.end()

    @contextmanager
    def unless_out_of_memory(self, member: Member) -> Iterator[None]:
        """Its limit may be too small for it: it is killed, and rightly so."""
        try:
            yield
        except (TenantError, OSError):
            if not member.cgroup.oom_kills():
                raise
            self.counts.done["tenant out of memory"] += 1
            self.kill(member)

    def send(self, member: Member, command: str) -> None:
        if command == "churn":
            command = "churn stop" if member.churning else "churn start"
            member.churning = not member.churning
        if command == "lock":
            # What is locked cannot be reclaimed: no limit would be kept.
            if member.limited:
                return
            member.locked = True
        with self.unless_out_of_memory(member):
            member.tenant.send(command)
            self.busy.append((member, command))

    def send_some(self) -> None:
        several = self.choose.randint(0, min(4, len(self.alive)))
        for member in self.choose.sample(self.alive, several):
            self.send(member, self.choose.choice(COMMANDS))

    def receive_all(self) -> None:
        while self.busy:
            member, command = self.busy.pop()
            name = f"tenant: {command.partition(' ')[0]}"
            with self.unless_out_of_memory(member):
                answer = member.tenant.receive()
                bad = answer.get("bad", 0)
                assert bad == 0, f"{command}: {bad} bad pages in {member.tenant.spec}"
                self.counts.done[name] += 1
                self.counts.refused[name] += answer.get("refused", 0) > 0
                if command == "unlock":
                    member.locked = False

    def all_do(self, command: str) -> None:
        self.receive_all()
        for member in list(self.alive):
            self.send(member, command)
        self.receive_all()
