# SPDX-License-Identifier: GPL-2.0-only
"""Rates and times, from what was observed and what was published."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nuksmlab.bench.records import PAGE_BYTES, growth, merged_mib
from nuksmlab.paper.merging import plan
from nuksmlab.paper.merging.records import Copies, Observed, Step, merges

GIB_MIB = 1024
Kind = TypeVar("Kind", bound=Observed)


@dataclass(frozen=True)
class Merged:
    """What a step's passes merged, and what that took."""

    mib: float
    seconds: float  # ksmd's, in the passes that merge
    all_seconds: float
    compares: int  # of one page's content with another's, in all passes

    @property
    def mib_per_second(self) -> float:
        return self.mib / self.seconds if self.mib else 0.0

    @property
    def compares_per_page(self) -> float:
        pages = self.mib * 2**20 / PAGE_BYTES
        return self.compares / pages if pages else 0.0


def merged(step: Step) -> Merged:
    merging = [
        (one, step["cpu_seconds"][number])
        for number, one in enumerate(step["passes"])
        if merges(step, number)
    ]
    return Merged(
        sum(merged_mib(one) for one, _ in merging),
        sum(seconds for _, seconds in merging),
        sum(step["cpu_seconds"]),
        sum(growth(one, "content_compares") or 0 for one in step["passes"]),
    )


def of(results: Sequence[Kind], case: str, configuration: str) -> list[Kind]:
    return [
        each
        for each in results
        if (each["run"]["case"], each["run"]["configuration"]) == (case, configuration)
    ]


def lines(results: Sequence[Observed], case: str) -> list[int]:
    """Of observed.jsonl."""
    return [line for line, each in enumerate(results, 1) if each["run"]["case"] == case]


def added(results: Sequence[Observed], case: str) -> list[str]:
    """What came and has a twin, in its order: not the worst case's first copy."""
    names = (
        step["added"]
        for each in results
        if each["run"]["case"] == case
        for step in each["steps"]
    )
    return list(dict.fromkeys(names))[1 if case == plan.WORST else 0 :]


@dataclass(frozen=True)
class Point:
    """A step of a case, for both indexes."""

    results: Sequence[Observed]
    case: str
    added: str

    def each(self, index: str, value: Callable[[Merged], float]) -> list[float]:
        """Of the repetitions, in their order, as each has run either index once."""
        return [
            value(merged(step))
            for each in of(self.results, self.case, index)
            for step in each["steps"]
            if step["added"] == self.added
        ]

    def pairs(self, value: Callable[[Merged], float]) -> list[tuple[float, float]]:
        """Of each repetition, the old index's and ours."""
        old, ours = (self.each(name, value) for name in (plan.OLD, plan.OURS))
        return list(zip(old, ours, strict=True))

    def ratios(self) -> list[float]:
        """Of each repetition: how many times as quick ours is."""
        pairs = self.pairs(lambda one: one.mib_per_second)
        return [ours / old if old else 0.0 for old, ours in pairs]

    def off_percent(self) -> list[float]:
        """Of each repetition: by how much one merges less than the other."""
        pairs = self.pairs(lambda one: one.mib)
        return [100 * abs(ours - old) / (max(ours, old) or 1) for old, ours in pairs]


def points(results: Sequence[Observed], case: str) -> list[Point]:
    return [Point(results, case, name) for name in added(results, case)]


def times_as_quick(results: Sequence[Observed], case: str) -> list[float]:
    """Of each repetition: the old index's CPU time by ours, whatever passes did."""
    old, ours = (
        [
            sum(sum(step["cpu_seconds"]) for step in each["steps"])
            for each in of(results, case, name)
        ]
        for name in (plan.OLD, plan.OURS)
    )
    return [one / other for one, other in zip(old, ours, strict=True)]


def mail_rate(point: Point) -> float | None:
    by_copy = plan.published()["mail"]["seconds"].get(point.case, {})
    return GIB_MIB / by_copy[point.added] if point.added in by_copy else None


def nanoseconds_per_page(times: Iterable[float], pages: float) -> float:
    """By the least of all times: what else a machine does only adds to one."""
    return min(times) / pages


@dataclass(frozen=True)
class Reading:
    """Nanoseconds per page, before and after merging, of each repetition."""

    before: list[float]
    after: list[float]

    def ratios(self) -> list[float]:
        return [a / b for b, a in zip(self.before, self.after, strict=True)]

    def medians(self) -> tuple[float, float]:
        return statistics.median(self.before), statistics.median(self.after)


def reading(results: Sequence[Copies], case: str, configuration: str) -> Reading:
    found = of(results, case, configuration)
    pages = found[0]["run"]["mib"] * 2**20 / PAGE_BYTES
    return Reading(
        [nanoseconds_per_page(each["read_before"], pages) for each in found],
        [nanoseconds_per_page(each["read_after"], pages) for each in found],
    )


def published_reading(case: str) -> Reading:
    read = plan.published()["mail"]["read"]
    before, after = (
        nanoseconds_per_page((1000 * time for time in read[case][when]), read["pages"])
        for when in ("before", "after")
    )
    return Reading([before], [after])
