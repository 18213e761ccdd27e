# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's merging, by its files in sysfs."""

import functools
import itertools
import re
from pathlib import Path

from nuksmlab import processes, wait

STOP, RUN, UNMERGE = 0, 1, 2

# A scanner that looks at everything at once, for a quick merge, and the kernel's
# own defaults, for the time after that.
FAST = {"pages_to_scan": 20000, "sleep_millisecs": 10}
RARELY = {"pages_to_scan": 1, "sleep_millisecs": 10_000}
STOCK = {"pages_to_scan": 100, "sleep_millisecs": 20}

# ksmd ends a round when it has scanned so many pages, or all there are.
ALL_PAGES = 2**32 - 1

# Between two rounds, in milliseconds: an hour and more, never the same twice.
pauses = itertools.count(3_600_000)


def process_stat(pid: int) -> dict[str, int]:
    """The numbers that the kernel says of one process; Linux 6.1."""
    lines = Path(f"/proc/{pid}/ksm_stat").read_text().splitlines()
    pairs = (line.partition(" ") for line in lines)
    return {name: int(value) for name, _, value in pairs if re.match(r"-?\d", value)}


@functools.cache
def ksmd() -> int:
    """Its number, which is the same as long as the kernel runs."""
    return processes.pid_of("ksmd")


class Ksm:
    def __init__(self, root: Path = Path("/sys/kernel/mm/ksm")) -> None:
        self.root = root

    def read(self, name: str) -> int:
        return int(self.read_text(name))

    def write(self, name: str, value: int) -> None:
        self.write_text(name, str(value))

    def read_text(self, name: str) -> str:
        return (self.root / name).read_text().strip()

    def write_text(self, name: str, text: str) -> None:
        (self.root / name).write_text(f"{text}\n")

    def has_engine(self) -> bool:
        """Whether this kernel places merged pages by itself."""
        return (self.root / "placement").is_file()

    def set_speed(self, speed: dict[str, int]) -> None:
        for name, value in speed.items():
            self.write(name, value)

    def start(self) -> None:
        self.write("run", RUN)

    def stop(self) -> None:
        self.write("run", STOP)

    def unmerge(self) -> None:
        """Takes all merged pages apart and stops."""
        self.write("run", UNMERGE)
        self.write("run", STOP)

    def counters(self) -> dict[str, int]:
        names = ("pages_shared", "pages_sharing", "pages_unshared", "full_scans")
        return {name: self.read(name) for name in names}

    def merged(self) -> int:
        """Mappings of merged pages: each page's first user, and the others."""
        return self.read("pages_shared") + self.read("pages_sharing")

    def replicas(self) -> dict[int, int]:
        """How many copies there are for those who use them, by node."""
        pairs = (word.split("=") for word in self.read_text("replicas_by_node").split())
        return {int(node.removeprefix("N")): int(count) for node, count in pairs}

    def wait_scans(self, scans: int) -> None:
        """Until the scanner has gone through everything so many times more."""
        goal = self.read("full_scans") + scans
        wait.until(
            lambda: self.read("full_scans") >= goal,
            lambda: f"full scan {goal}; counters are {self.counters()}",
        )

    def rest(self) -> None:
        """Stops ksmd and has it wait to be started: for one scan, and that at once.

        It may be in the pause between two rounds, or just before it, which a start
        does not end. Another value of `sleep_millisecs` does, unless ksmd began its
        pause with that value: so it gets two, and time to look at each.
        """
        self.stop()
        stat = Path(f"/proc/{ksmd()}/stat")

        def asleep() -> bool:
            return stat.read_text().rpartition(")")[2].split()[0] == "S"

        for _ in "12":
            self.write("sleep_millisecs", next(pauses))
            wait.until(asleep, lambda: f"ksmd; {self.counters()}", poll=0.001)
        self.write("pages_to_scan", ALL_PAGES)

    def scan_once(self) -> None:
        """Has ksmd end the scan that it is in, or do a whole one, and then pause."""
        self.rest()
        self.scan_rested()

    def scan_rested(self, poll: float = 0.1) -> None:
        """The same, after rest()."""
        goal = self.read("full_scans") + 1
        self.start()
        wait.until(
            lambda: self.read("full_scans") >= goal,
            lambda: f"scan {goal}; {self.counters()}",
            poll=poll,
        )

    def settle(self) -> None:
        """Two quick scans: what the scanner lost sight of is in its books again.

        When it meets a page on its way to another node, it forgets that mapping,
        and `pages_sharing` is one less, until it comes by again.
        """
        self.set_speed(FAST)
        self.wait_scans(2)
        self.set_speed(STOCK)

    def merge(self, mappings: int) -> None:
        """Scans quickly until so many mappings are merged and no more are found."""
        self.set_speed(FAST)
        self.start()
        wait.until(
            lambda: self.merged() >= mappings,
            lambda: f"{mappings} merged mappings; counters are {self.counters()}",
        )
        before = -1
        while before != self.merged():
            before = self.merged()
            self.wait_scans(2)
        self.set_speed(STOCK)
