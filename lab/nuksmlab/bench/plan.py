# SPDX-License-Identifier: GPL-2.0-only
"""Workloads, sizes, indexes, and the order in which they are run."""

from collections.abc import Sequence
from dataclasses import dataclass

from nuksmlab.bench.records import STOCK, Run

# Shares of a copy's pages in percent, by the tenant's names for them.
WORKLOADS = {
    "worst": {"alike": 100},
    "best": {"same": 100},
    "random": {"private": 100},
    "mix": {"equal": 30, "zero": 5, "changing": 5, "private": 60},
}


@dataclass(frozen=True)
class Index:
    """How pages are ordered, and in how many trees."""

    order: str
    kib_per_tree: int | None  # None for the kernel's default


DEFAULT = Index("checksum", None)
ONE_TREE = Index("content", 0)  # stock's algorithm
INDEXES = (ONE_TREE, Index("content", 102400), Index("checksum", 0), DEFAULT)
UNPATCHED = (Index(STOCK, None),)
FORESTS = tuple(Index("checksum", kib) for kib in (16, 32, 64, 128, 256, 1024, 0))


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    workloads: tuple[str, ...]
    sizes: tuple[int, ...]  # MiB per copy
    repetitions: int


FULL = Extent(tuple(WORKLOADS), (256, 512, 1024, 2048), 3)
QUICK = Extent(tuple(WORKLOADS), (256,), 1)
TREES = Extent(("worst", "random"), (256, 1024), 3)


def runs(extent: Extent, indexes: Sequence[Index], repetition: int) -> list[Run]:
    """One repetition. The indexes take turns, and turns at being the first.

    The largest come first: later runs find memory that the host has provided.
    """
    first = repetition % len(indexes)
    return [
        {
            "workload": workload,
            "mib": mib,
            "index": index.order,
            "kib_per_tree": index.kib_per_tree,
            "repetition": repetition,
        }
        for mib in sorted(extent.sizes, reverse=True)
        for workload in extent.workloads
        for index in (*indexes[first:], *indexes[:first])
    ]
