# SPDX-License-Identifier: GPL-2.0-only
"""Medians, speedups, and what does not fit together."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from nuksmlab.bench.goals import Goal
from nuksmlab.bench.records import STOCK, Result, pages


@dataclass(frozen=True)
class Series:
    """All results with one index: a column of the table, a line of the picture."""

    index: str
    kib_per_tree: int | None  # None for stock

    @property
    def name(self) -> str:
        if self.index == STOCK:
            return "unpatched kernel"
        if self.kib_per_tree == 0:
            return f"{self.index}, one tree"
        return f"{self.index}, {self.kib_per_tree} KiB per tree"


BASELINE = Series("content", 0)
UNPATCHED = Series(STOCK, None)
LEAST_SPEEDUP, MOST_GROWTH = 10, 1.3


@dataclass(frozen=True)
class Figure:
    """All repetitions with the same workload, size and index."""

    pages: int
    cpu_seconds: list[float]
    merged_mib: float
    compares_per_page: float | None
    compared_bytes_per_page: float | None

    @property
    def seconds(self) -> float:
        return statistics.median(self.cpu_seconds)

    @property
    def spread(self) -> float:
        """From the quickest repetition to the slowest, in parts of the median."""
        return (max(self.cpu_seconds) - min(self.cpu_seconds)) / self.seconds

    @property
    def mib_per_second(self) -> float:
        return self.merged_mib / self.seconds

    def page_microseconds(self, seconds: float) -> float:
        return seconds * 1e6 / self.pages


def figure(repetitions: Sequence[Result]) -> Figure:
    first = repetitions[0]
    return Figure(
        pages(first["mib"]),
        [result["cpu_seconds"] for result in repetitions],
        first["merged_mib"],
        first["compares_per_page"],
        first["compared_bytes_per_page"],
    )


class Figures:
    """By workload, MiB per copy, and series; each in the order of the results."""

    def __init__(self, results: Iterable[Result]) -> None:
        grouped = defaultdict(list)
        for result in results:
            series = Series(result["index"], result["kib_per_tree"])
            grouped[result["workload"], result["mib"], series].append(result)
        self._figures = {key: figure(group) for key, group in grouped.items()}
        self.workloads = list(dict.fromkeys(key[0] for key in grouped))
        self.sizes = sorted({key[1] for key in grouped})
        self.series = list(dict.fromkeys(key[2] for key in grouped))

    def __getitem__(self, key: tuple[str, int, Series]) -> Figure:
        return self._figures[key]

    def values(self) -> Iterable[Figure]:
        return self._figures.values()

    def time_ratios(
        self, workload: str, mib: int, of: Series, to: Series
    ) -> list[float]:
        """By repetition."""
        both = (self[workload, mib, series].cpu_seconds for series in (of, to))
        return [one / other for one, other in zip(*both, strict=True)]


def goals(figures: Figures) -> list[Goal]:
    """What the index is to achieve, as far as it was measured here.

    The worst repetition decides; where it is to change nothing, the median one does.
    Stock's algorithm in our kernel may be slower than in stock's, so both are compared
    with; the latter runs in a boot of its own.
    """
    stocks = [one for one in (BASELINE, UNPATCHED) if one in figures.series]
    best = next(s for s in figures.series if s.index == "checksum" and s.kib_per_tree)
    result = []
    for mib, stock in product(figures.sizes, stocks):
        if mib in (512, 1024):
            speedup = min(figures.time_ratios("worst", mib, stock, best))
            what = f"worst, {mib} MiB: `{stock.name}` takes 10 times as long or more"
            result.append(Goal(what, speedup, speedup >= LEAST_SPEEDUP))
    least, most = figures.sizes[0], figures.sizes[-1]
    if (least, most) == (256, 2048):
        small, large = (figures["worst", mib, best] for mib in (least, most))
        growth = max(
            there * small.pages / (here * large.pages)
            for here, there in zip(small.cpu_seconds, large.cpu_seconds, strict=True)
        )
        what = "worst: a page at 2048 MiB takes at most 1.3 times one at 256"
        result.append(Goal(what, growth, growth <= MOST_GROWTH))
    for workload, stock in product(("best", "random"), stocks):
        slowest = max(
            statistics.median(figures.time_ratios(workload, mib, best, stock))
            for mib in figures.sizes
        )
        what = f"{workload}, any size: at most the time of `{stock.name}`"
        result.append(Goal(what, slowest, slowest <= 1))
    return result


def contradictions(results: Sequence[Result]) -> list[str]:
    """Each index has to merge the same pages."""
    merged = defaultdict(set)
    for result in results:
        merged[result["workload"], result["mib"]].add(result["merged_mib"])
    return [
        f"{workload}, {mib} MiB: merged {sorted(amounts)} MiB, by index or repetition"
        for (workload, mib), amounts in merged.items()
        if len(amounts) > 1
    ]
