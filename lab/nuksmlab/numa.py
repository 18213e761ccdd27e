# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own account of where pages are, independent of `nuksm`."""

import os
import re
from pathlib import Path


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


def free_mib(node: int) -> int:
    text = Path(f"/sys/devices/system/node/node{node}/meminfo").read_text()
    match = re.search(r"MemFree:\s+([0-9]+) kB", text)
    if match is None:
        raise ValueError(f"node {node}'s meminfo has no MemFree")
    return int(match[1]) // 1024


def parse_high_watermark(zoneinfo: str, node: int) -> int:
    """Pages of free memory below which the kernel reclaims, over a node's zones."""
    zones = [zone for zone in zoneinfo.split("Node ") if zone.startswith(f"{node},")]
    matches = (re.search(r"^ +high +([0-9]+)$", zone, re.MULTILINE) for zone in zones)
    return sum(int(match[1]) for match in matches if match)


def high_watermark_mib(node: int) -> int:
    pages = parse_high_watermark(Path("/proc/zoneinfo").read_text(), node)
    return pages * os.sysconf("SC_PAGE_SIZE") // (1 << 20)
