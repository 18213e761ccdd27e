# SPDX-License-Identifier: GPL-2.0-only
"""What one run observes, and the figures that are made from it.

A run is two copies of a workload, each in its own process, and two full scans.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

PAGE_BYTES = 4096
COPIES = 2

# From one moment to another.
CpuSeconds = Callable[[float, float], float]

# The order that an unpatched kernel has; the others are as in sysfs.
STOCK = "stock"


class Run(TypedDict):
    workload: str
    mib: int  # of each copy
    index: str  # content, checksum or stock
    kib_per_tree: int | None  # None for the kernel's default
    repetition: int


class Scan(TypedDict):
    began: float  # seconds since the epoch
    ended: float
    # By file name; None for files that this kernel does not have.
    before: dict[str, int | None]
    after: dict[str, int | None]


class Sample(TypedDict):
    """What the guest writes down. The first scan notes checksums, the second merges."""

    run: Run
    kib_per_tree: int | None
    trees: int
    scans: list[Scan]


class Result(TypedDict):
    """The scan that merges; an entry of index.json."""

    workload: str
    mib: int
    index: str
    kib_per_tree: int | None  # None for stock
    trees: int
    repetition: int
    cpu_seconds: float  # ksmd's
    wall_seconds: float
    merged_mib: float
    compares_per_page: float | None
    compared_bytes_per_page: float | None


def pages(mib: int) -> int:
    """That ksmd scans."""
    return COPIES * mib * 2**20 // PAGE_BYTES


def growth(scan: Scan, name: str) -> int | None:
    before, after = scan["before"][name], scan["after"][name]
    return None if before is None or after is None else after - before


def merged_mib(scan: Scan) -> float:
    """What merging gave back: each merged page but one of its copies."""
    grown = growth(scan, "pages_sharing")
    assert grown is not None
    return grown * PAGE_BYTES / 2**20


def result(sample: Sample, cpu_seconds: CpuSeconds) -> Result:
    run, merging = sample["run"], sample["scans"][-1]

    def per_page(name: str) -> float | None:
        grown = growth(merging, name)
        return None if grown is None else grown / pages(run["mib"])

    return {
        "workload": run["workload"],
        "mib": run["mib"],
        "index": run["index"],
        "kib_per_tree": sample["kib_per_tree"],
        "trees": sample["trees"],
        "repetition": run["repetition"],
        "cpu_seconds": cpu_seconds(merging["began"], merging["ended"]),
        "wall_seconds": merging["ended"] - merging["began"],
        "merged_mib": merged_mib(merging),
        "compares_per_page": per_page("content_compares"),
        "compared_bytes_per_page": per_page("compared_bytes"),
    }


def read_lines(path: Path) -> list[Any]:
    """What a guest, or a program, wrote down: JSON, one sample a line."""
    return [json.loads(line) for line in path.read_text().splitlines()]
