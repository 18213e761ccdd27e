# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own account of where pages are, independent of `nuksm`."""

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MOVE_PAGES = 279  # the system call's number on x86-64


def online(root: Path = Path("/sys/devices/system/node")) -> list[int]:
    names = (entry.name for entry in root.glob("node[0-9]*"))
    return sorted(int(name.removeprefix("node")) for name in names)


def parse_numa_maps(text: str, address: int) -> dict[int, int]:
    """Pages per node of the mapping that starts at the address."""
    for line in text.splitlines():
        start, *_ = line.split(" ", 1)
        if int(start, 16) == address:
            counts = re.findall(r" N([0-9]+)=([0-9]+)", line)
            return {int(node): int(pages) for node, pages in counts}
    raise ValueError(f"numa_maps has no mapping at {address:x}")


def pages_by_node(pid: int, address: int) -> dict[int, int]:
    text = Path(f"/proc/{pid}/numa_maps").read_text()
    return parse_numa_maps(text, address)


def parse_anonymous(text: str) -> dict[int, int]:
    """Pages per node of all mappings that have pages of no file."""
    result: dict[int, int] = {}
    for line in text.splitlines():
        if " anon=" not in line:
            continue
        for node, pages in re.findall(r" N([0-9]+)=([0-9]+)", line):
            result[int(node)] = result.get(int(node), 0) + int(pages)
    return result


def anonymous_pages_by_node(pid: int) -> dict[int, int]:
    return parse_anonymous(Path(f"/proc/{pid}/numa_maps").read_text())


@contextmanager
def running_on(node: int) -> Iterator[None]:
    """This thread runs on the node's CPUs meanwhile."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus(node))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def free_mib(node: int) -> int:
    text = Path(f"/sys/devices/system/node/node{node}/meminfo").read_text()
    match = re.search(r"MemFree:\s+([0-9]+) kB", text)
    if match is None:
        raise ValueError(f"node {node}'s meminfo has no MemFree")
    return int(match[1]) // 1024


@dataclass
class Zone:
    """Of one node, in pages."""

    node: int
    free: int = 0
    high: int = 0
    listed: int = 0  # free, but in the list of a CPU
    kept: int = 0  # for those who can use no other zone

    @property
    def room(self) -> int:
        """For programs; less than none below the watermark."""
        return self.free - self.kept - self.high if self.free > self.kept else 0


def parse_zones(zoneinfo: str) -> list[Zone]:
    zones: list[Zone] = []
    for line in zoneinfo.splitlines():
        numbers = [int(number) for number in re.findall(r"\b[0-9]+\b", line)]
        if line.startswith("Node "):
            zones.append(Zone(numbers[0]))
        elif re.match(r" +pages free ", line):
            zones[-1].free = numbers[0]
        elif re.match(r" +high +[0-9]+$", line):
            zones[-1].high = numbers[0]
        elif re.match(r" +count: ", line):
            zones[-1].listed += numbers[0]
        elif re.match(r" +protection: ", line):
            zones[-1].kept = max(numbers)
    return zones


def zones(node: int) -> list[Zone]:
    every = parse_zones(Path("/proc/zoneinfo").read_text())
    return [zone for zone in every if zone.node == node]


def spare_pages(zoneinfo: Path = Path("/proc/zoneinfo")) -> int:
    """Of all nodes, free or with what files hold, which a program's start adds to.

    With the free ones in CPUs' lists, which no other count has.
    """
    found = re.findall(
        r"^\s+(?:nr_free_pages|nr_file_pages|count:)\s+(\d+)$",
        zoneinfo.read_text(),
        re.M,
    )
    return sum(map(int, found))


def listed_pages(node: int) -> int:
    """Free, but for no other CPU than the one in whose list they are."""
    return sum(zone.listed for zone in zones(node))


def _mib(pages: int) -> int:
    return pages * os.sysconf("SC_PAGE_SIZE") // (1 << 20)


def high_watermark_mib(node: int) -> int:
    return _mib(sum(zone.high for zone in zones(node)))


def room_mib(node: int) -> int:
    """What programs can take on the node before the kernel reclaims there."""
    return _mib(max(0, sum(zone.room for zone in zones(node))))


def cpus(node: int) -> set[int]:
    """Those of a node."""
    found = Path(f"/sys/devices/system/node/node{node}").glob("cpu[0-9]*")
    return {int(cpu.name.removeprefix("cpu")) for cpu in found}


def nodes_of(pid: int, address: int, pages: int) -> list[int]:
    """The node of each page; below 0 where there is none. Any owner can ask this."""
    size = os.sysconf("SC_PAGE_SIZE")
    places = (ctypes.c_void_p * pages)(*(address + i * size for i in range(pages)))
    status = (ctypes.c_int * pages)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(MOVE_PAGES, pid, pages, places, None, status, 0):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return list(status)
