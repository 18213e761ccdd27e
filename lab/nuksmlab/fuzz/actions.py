# SPDX-License-Identifier: GPL-2.0-only
"""What is done to the machine while the fuzzers act."""

import errno
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from nuksmlab import domains, program, stress
from nuksmlab.fuzz.crowd import Crowd, Member
from nuksmlab.ksm import Ksm

MERGE_SECONDS = 10.0
POLL_SECONDS = 0.2

# ksmd holds its mutex from one sleep to the next. With wide windows, a batch of tens of
# thousands of pages keeps others waiting for minutes, as a hung task would.
BRISK = {"pages_to_scan": 2000, "sleep_millisecs": 1}
ANY_TIME: dict[str, Sequence[str | int]] = {
    "smart_scan": (0, 1),
    "use_zero_pages": (0, 1),
    "pages_to_scan": (100, 1000, 5000),
    "sleep_millisecs": (0, 1, 20),
    "advisor_mode": ("none", "scan-time"),
    "placement": ("first", "fair", "priority"),
    "look_cpu_permille": (0, 5, 1000),
    "replica_percent": (0, 5, 100),
}
# What a round begins with: copies, and who looks where they are needed.
AT_FIRST: dict[str, Sequence[str | int]] = {
    "placement": ("fair", "priority"),
    "look_cpu_permille": (5, 1000),
    "replica_percent": (5, 100),
}
DOMAINS = ("inherit", "own", 0, 1, 2)
NOTHING_TRACKED: dict[str, Sequence[str | int]] = {
    "merge_across_nodes": (0, 1, 1),
    "max_page_sharing": (2, 8, 256),
    "index": ("content", "checksum"),
    "kib_per_tree": (0, 16, 102400),
    "checksum_bits": (4, 32),
}
WIDTHS = (50, 200, 1000, 5000)  # microseconds; ksmd passes some at each page


class Actions:
    """In one round; the swap is the machine's."""

    def __init__(self, ksm: Ksm, crowd: Crowd, swap: stress.Swap) -> None:
        self.ksm = ksm
        self.crowd = crowd
        self.choose = crowd.choose
        self.counted = crowd.counts.counted
        self.faults = stress.Faults()
        self.windows = stress.Windows()
        self.swap = swap
        self.memory = stress.most_movable_memory(crowd.nodes)

    def all(self) -> list[Callable[[], None]]:
        actions = [
            *(self.start_fuzzer, self.start_fuzzer, self.end_fuzzer, self.renice),
            *(self.run, self.knob, self.knob, self.structure, self.rebuild),
            *(self.merge, self.merge, self.merge),
            *(self.place, self.migrate, self.compact, self.split, self.inject_faults),
            *(self.limit, self.limit, self.reclaim, self.reclaim),
            *(self.confine, self.confine),
            *(self.swap_off_and_on, self.generations),
        ]
        if domains.exist():
            actions += [
                *(self.give_domain, self.give_domain, self.change_default_domain),
                *(self.move, self.move, self.move),
            ]
        if self.windows.points:
            actions += 3 * [self.widen]
        if self.memory.blocks:
            actions.append(self.offline_and_online)
        return actions

    def start_fuzzer(self) -> None:
        nodes = self.crowd.nodes
        if len(self.crowd.alive) < self.crowd.size.most * len(nodes):
            with self.counted("start a fuzzer"):
                self.crowd.start(self.choose.choice(nodes))

    def end_fuzzer(self) -> None:
        if len(self.crowd.alive) <= self.crowd.size.first // 2 * len(self.crowd.nodes):
            return
        member = self.crowd.any()
        if self.choose.random() < 0.5:
            with self.counted("kill a fuzzer"):
                self.crowd.kill(member)
        else:
            with self.counted("end a fuzzer"):
                self.crowd.end(member)

    def renice(self) -> None:
        member = self.crowd.any()
        with self.counted("renice a fuzzer"), self.crowd.unless_out_of_memory(member):
            member.fuzzer.renice(self.choose.randint(-20, 19))

    def run(self) -> None:
        value = self.choose.choice((0, 1, 1, 2))
        with self.counted(f"run {value}", errno.ENOMEM):
            self.ksm.write("run", value)

    def knob(self) -> None:
        name = self.choose.choice(list(ANY_TIME))
        owned_by_advisor = (errno.EINVAL,) if name == "pages_to_scan" else ()
        self.turn(name, ANY_TIME[name], *owned_by_advisor)

    def turn(self, name: str, values: Sequence[str | int], *legitimate: int) -> None:
        value = self.choose.choice(values)
        if name == "checksum_bits":
            path = stress.DEBUGFS / "nuksm" / name
        else:
            path = self.ksm.root / name
        with self.counted(f"{name} {value}", *legitimate):
            stress.put(path, value)

    def structure(self) -> None:
        """Allowed only while nothing is tracked; and now?"""
        name = self.choose.choice(list(NOTHING_TRACKED))
        self.turn(name, NOTHING_TRACKED[name], errno.EBUSY)

    def rebuild(self) -> None:
        """Everything taken apart, to be merged anew in another way."""
        with self.counted("run 2", errno.ENOMEM):
            self.ksm.write("run", 2)
        for name, values in NOTHING_TRACKED.items():
            self.turn(name, values, errno.EBUSY, errno.ENOMEM)
        with self.counted("run 1"):
            self.ksm.write("run", 1)

    def merge(self) -> None:
        """Quickly, for a while: two scans, unless windows make that long."""
        with self.counted("merge"):
            self.ksm.write_text("advisor_mode", "none")
            self.ksm.set_speed(BRISK)
            self.ksm.start()
            goal = self.ksm.read("full_scans") + 2
            end = time.monotonic() + MERGE_SECONDS
            while self.ksm.read("full_scans") < goal and time.monotonic() < end:
                time.sleep(POLL_SECONDS)

    def widen(self) -> None:
        """One window, or several, to be hit; else what is rare stays rare."""
        names = [point.name for point in self.windows.points]
        chosen = (
            self.choose.choices(names, k=self.choose.randint(0, 3)) if names else []
        )
        with self.counted("widen windows"):
            self.windows.open({name: self.choose.choice(WIDTHS) for name in chosen})

    def place(self) -> None:
        with self.counted("nuksm place"):
            program.place_once(self.choose.choice(("fair", "priority")))

    def migrate(self) -> None:
        source, target = self.choose.sample(self.crowd.nodes, 2)
        member = self.crowd.any()
        with self.counted("migrate_pages"), self.crowd.unless_out_of_memory(member):
            stress.migrate(member.fuzzer.pid, source, target)

    def compact(self) -> None:
        with self.counted("compact memory"):
            stress.put(Path("/proc/sys/vm/compact_memory"), 1)

    def split(self) -> None:
        with self.counted("split huge pages"):
            stress.put(stress.DEBUGFS / "split_huge_pages", 1)

    def inject_faults(self) -> None:
        with self.counted("inject faults"):
            self.faults.switch(self.choose.random() < 0.5)

    def limit(self) -> None:
        member = self.crowd.any()
        mib = self.choose.choice((member.mib // 2 + 2, None))
        with self.counted("limit a fuzzer" if mib else "lift a limit"):
            member.cgroup.limit(mib)

    def reclaim(self) -> None:
        member = self.crowd.any()
        with self.counted("reclaim from a fuzzer", errno.EAGAIN):
            member.cgroup.reclaim(max(1, member.mib // 2))

    def confine(self) -> None:
        """Fuzzers to some nodes for their memory, or to none any more."""
        nodes = self.crowd.nodes
        chosen = self.choose.sample(nodes, self.choose.randrange(len(nodes)))
        for member in self.some():
            with self.counted("change a cpuset"):
                member.cgroup.confine(chosen)

    def some(self) -> list[Member]:
        """Fuzzers: one of a few, more of many."""
        return self.choose.choices(self.crowd.alive, k=self.crowd.size.first // 2)

    def give_domain(self) -> None:
        """To all that a fuzzer has, or to half of it, where it may not be."""
        for member in self.some():
            chosen = self.choose.choice([member.cgroup, *member.cgroup.halves])
            with self.counted("give a domain"):
                chosen.give(self.choose.choice(DOMAINS))

    def change_default_domain(self) -> None:
        self.turn("default_domain", ("shared", "own"))

    def move(self) -> None:
        """A fuzzer, or a child of one, to where it is, or to another domain perhaps."""
        for cgroup in (member.cgroup for member in self.some()):
            if pids := cgroup.pids():
                with self.counted("move to another cgroup", errno.ESRCH):
                    self.choose.choice(cgroup.halves).take(self.choose.choice(pids))

    def swap_off_and_on(self) -> None:
        """Without limits, within which some could not come back."""
        for member in self.crowd.alive:
            member.cgroup.limit(None)
        with self.counted("swap off and on"):
            self.swap.off()
            self.swap.on()

    def generations(self) -> None:
        value = self.choose.choice("yn")
        with self.counted(f"lru_gen {value}"):
            stress.put(Path("/sys/kernel/mm/lru_gen/enabled"), value)

    def offline_and_online(self) -> None:
        """What is pinned stays where it is, and its memory online."""
        several = self.choose.randint(1, min(2, len(self.memory.blocks)))
        blocks = self.choose.sample(self.memory.blocks, several)
        with self.counted("memory off and on"):
            went = self.memory.offline(blocks)
            self.memory.online()
        self.crowd.counts.done["memory block off"] += went
        self.crowd.counts.refused["memory off and on"] += several - went

    def calm(self) -> None:
        """Nothing that the machine does of itself disturbs from here on."""
        self.faults.switch(False)
        self.windows.close()
        self.swap_off_and_on()
