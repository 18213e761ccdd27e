# SPDX-License-Identifier: GPL-2.0-only
"""What a stress run does to a machine besides merging: swap, limits, faults."""

import ctypes
import mmap
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from nuksmlab import numa, processes, wait

DEBUGFS = Path("/sys/kernel/debug")
CGROUPS = Path("/sys/fs/cgroup")
KMEMLEAK = DEBUGFS / "kmemleak"
RACES = DEBUGFS / "kcsan"
FAULT_PERCENT = 5
OFFLINE_SECONDS = 10.0
OFFLINE_REFUSED = re.compile("busy|Invalid")  # in use, or with holes in it
MIGRATE_PAGES = 256  # the system call's number on x86-64
MOVE_ALL = 1 << 2  # of move_pages(2): also what others have, too


def put(path: Path, value: str | int) -> None:
    path.write_text(f"{value}\n")


class Swap:
    """Compressed memory as swap."""

    def __init__(self, mib: int, name: str = "zram0") -> None:
        self.device = f"/dev/{name}"
        put(Path(f"/sys/block/{name}/disksize"), f"{mib}M")
        subprocess.run(["mkswap", self.device], check=True, stdout=subprocess.DEVNULL)
        self.on()

    def on(self) -> None:
        subprocess.run(["swapon", self.device], check=True)

    def off(self) -> None:
        """Brings back all that was paged out."""
        subprocess.run(["swapoff", self.device], check=True)


class Cgroup:
    """A memory cgroup for one tenant."""

    def __init__(self, name: str) -> None:
        account_memory()
        self.path = CGROUPS / name
        self.path.mkdir()

    def prefix(self) -> Sequence[str]:
        """Before a command: its memory counts here; short of it, it dies first."""
        join = 'echo $$ >"$0" && echo 1000 >/proc/$$/oom_score_adj && exec "$@"'
        return ["sh", "-c", join, str(self.path / "cgroup.procs")]

    def stand_back(self) -> None:
        """Lets everybody else run first: ksmd, and who gives commands."""
        put(self.path / "cpu.weight", 1)

    def limit(self, mib: int | None) -> None:
        put(self.path / "memory.max", "max" if mib is None else mib << 20)

    def leave(self, pages: int) -> None:
        """Limits it to what it has, and so many pages more."""
        used = int((self.path / "memory.current").read_text())
        put(self.path / "memory.max", used + pages * mmap.PAGESIZE)

    def left(self) -> int:
        """Pages until it has what it may have."""
        used, most = (
            int((self.path / f"memory.{name}").read_text())
            for name in ("current", "max")
        )
        return (most - used) // mmap.PAGESIZE

    def settle(self) -> None:
        """Has CPUs give back what they have charged in advance, and pages out."""
        put(self.path / "memory.high", 0)
        put(self.path / "memory.high", "max")

    def used_mib(self) -> int:
        return int((self.path / "memory.current").read_text()) >> 20

    def paid(self, what: str) -> int:
        """Bytes of memory that it pays for, as its memory.stat has them."""
        words = (self.path / "memory.stat").read_text().split()
        return int(words[words.index(what) + 1])

    def confine(self, nodes: Sequence[int]) -> None:
        """Its memory may be on these only, or on any if there are none."""
        put(CGROUPS / "cgroup.subtree_control", "+cpuset")
        put(self.path / "cpuset.mems", ",".join(map(str, nodes)) + "\n")

    def reclaim(self, mib: int) -> None:
        put(self.path / "memory.reclaim", mib << 20)

    def times(self, event: str) -> int:
        """How often that has happened in it, or below, as memory.events calls it."""
        events = (self.path / "memory.events").read_text().split()
        return int(events[events.index(event) + 1])

    def oom_kills(self) -> int:
        return self.times("oom_kill")

    def end(self) -> None:
        """Kills what is in it, children included, and removes it."""
        put(self.path / "cgroup.kill", 1)
        events = self.path / "cgroup.events"
        wait.until(
            lambda: "populated 0" in events.read_text(),
            lambda: f"the end of {self.path.name}",
            poll=0.01,
        )
        self.path.rmdir()


def account_memory() -> None:
    """Lets cgroups below the root count and limit memory, and weigh CPU time."""
    put(CGROUPS / "cgroup.subtree_control", "+memory +cpu")


@contextmanager
def cpuset(name: str, pid: int) -> Iterator[Path]:
    """A cgroup that says on which nodes a process's memory has to be."""
    put(CGROUPS / "cgroup.subtree_control", "+cpuset")
    path = CGROUPS / name
    path.mkdir()
    try:
        put(path / "cgroup.procs", pid)
        yield path
    finally:
        put(CGROUPS / "cgroup.procs", pid)
        path.rmdir()


def migrate(pid: int, source: int, target: int) -> None:
    """Asks the kernel to move all of a process's pages to another node."""
    masks = [ctypes.c_ulong(1 << node) for node in (source, target)]
    bits = 8 * ctypes.sizeof(ctypes.c_ulong) + 1
    _call(MIGRATE_PAGES, pid, bits, *map(ctypes.byref, masks))


def move_page(pid: int, address: int, node: int) -> None:
    """The same of one page, whoever else has it."""
    place, to, status = ctypes.c_void_p(address), ctypes.c_int(node), ctypes.c_int()
    _call(numa.MOVE_PAGES, pid, 1, *map(ctypes.byref, (place, to, status)), MOVE_ALL)


def _call(number: int, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, *arguments) < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


class MovableMemory:
    """A node's memory that can be taken offline; present only with movablecore=."""

    def __init__(self, node: int) -> None:
        blocks = Path(f"/sys/devices/system/node/node{node}").glob("memory[0-9]*")
        self.blocks = sorted(
            block
            for block in blocks
            if (block / "valid_zones").read_text().strip() == "Movable"
        )

    def offline(self, blocks: Sequence[Path]) -> int:
        """How many of these blocks went; the others are in use and stayed.

        The kernel tries for as long as nobody interrupts it: past the deadline,
        somebody does.
        """
        went = 0
        for block in blocks:
            try:
                done = subprocess.run(
                    ["sh", "-c", 'exec /bin/echo offline >"$0"', str(block / "state")],
                    stderr=subprocess.PIPE,
                    text=True,
                    check=False,
                    timeout=OFFLINE_SECONDS,
                )
            except subprocess.TimeoutExpired:
                continue
            if done.returncode and not OFFLINE_REFUSED.search(done.stderr):
                raise OSError(f"{block} does not go offline: {done.stderr}")
            went += done.returncode == 0
        return went

    def online(self) -> None:
        for block in self.blocks:
            if (block / "state").read_text().strip() == "offline":
                put(block / "state", "online_movable")


def most_movable_memory(nodes: Sequence[int]) -> MovableMemory:
    """The kernel finds movable memory in the highest zone only, on whatever nodes."""
    return max(map(MovableMemory, nodes), key=lambda memory: len(memory.blocks))


class Faults:
    """Lets some of ksmd's allocations fail, on kernels that can."""

    def __init__(self) -> None:
        names = ("failslab", "fail_page_alloc")
        self.kinds = [DEBUGFS / name for name in names if (DEBUGFS / name).is_dir()]
        for kind in self.kinds:
            put(kind / "task-filter", "Y")
            put(kind / "ignore-gfp-wait", "N")
            put(kind / "times", -1)
            put(kind / "verbose", 0)
        if self.kinds:
            put(DEBUGFS / "fail_page_alloc" / "min-order", 0)
            put(DEBUGFS / "fail_page_alloc" / "ignore-gfp-highmem", "N")
            put(Path(f"/proc/{processes.pid_of('ksmd')}/make-it-fail"), 1)

    def switch(self, on: bool) -> None:
        for kind in self.kinds:
            put(kind / "probability", FAULT_PERCENT if on else 0)

    def refuse_pages(self) -> None:
        """Every other one; what is smaller than a page only if it takes a new one."""
        put(DEBUGFS / "fail_page_alloc" / "probability", 50)


class Windows:
    """Points of the engine at which it can be told to linger; none on most kernels."""

    def __init__(self, root: Path = DEBUGFS / "nuksm" / "windows") -> None:
        self.points = sorted(root.iterdir()) if root.is_dir() else []

    def open(self, microseconds: Mapping[str, int]) -> None:
        """Whoever passes a point waits at random up to so long; not at the others."""
        for point in self.points:
            put(point, microseconds.get(point.name, 0))

    def close(self) -> None:
        self.open({})


def split_leaks(text: str) -> list[str]:
    """One entry for each suspect in kmemleak's report."""
    parts = re.split(r"^(?=unreferenced object)", text, flags=re.MULTILINE)
    return [part.strip() for part in parts if part.strip()]


def stop_leak_scans() -> None:
    """The kernel's own, every few minutes, would only take time."""
    if KMEMLEAK.exists():
        put(KMEMLEAK, "scan=off")


def find_races() -> None:
    """On the kernel that can; while it boots it does not, which is quicker."""
    if RACES.exists():
        put(RACES, "on")


def leaks() -> list[str]:
    """What nothing refers to in two scans; none where the kernel cannot tell."""
    if not KMEMLEAK.exists():
        return []
    for _ in range(2):
        put(KMEMLEAK, "scan")
    return split_leaks(KMEMLEAK.read_text())
