# SPDX-License-Identifier: GPL-2.0-only
"""From counts to run times, and from these to the paper's figures of merit.

A run takes its instructions' time and that of its DRAM accesses, one after the
other: at their latency, or at the bandwidth where that takes longer.
"""

import statistics
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nuksmlab.counter import Counts
from nuksmlab.paper.trial import Result, ResultInstance, local_pages_percent

LINE_BYTES = 64
PAPERS_MACHINE = Path(__file__).with_name("machine.toml")


@dataclass(frozen=True)
class Hardware:
    """The machine that run times are modelled for."""

    name: str
    ghz: float
    cycles_per_instruction: float
    local_ns: float
    remote_ns: float
    local_gib_per_second: float
    remote_gib_per_second: float


def read_hardware(path: Path) -> Hardware:
    return Hardware(**tomllib.loads(path.read_text()))


def modelled_seconds(counts: Counts, hardware: Hardware) -> float:
    local = counts["local"] + counts["elsewhere"]
    remote = counts["remote"]
    computing = (
        counts["instructions"] * hardware.cycles_per_instruction / hardware.ghz * 1e-9
    )
    waiting = (local * hardware.local_ns + remote * hardware.remote_ns) * 1e-9
    moving = (LINE_BYTES / 2**30) * (
        local / hardware.local_gib_per_second + remote / hardware.remote_gib_per_second
    )
    return computing + max(waiting, moving)


def seconds(instance: ResultInstance, hardware: Hardware) -> float:
    """Modelled where accesses were counted, else as measured."""
    counts = instance["counts"]
    if counts is None:
        return instance["answer"]["seconds"]
    return modelled_seconds(counts, hardware)


def mean_seconds(results: Sequence[Result], hardware: Hardware) -> list[float]:
    """Of each instance, over the repetitions."""
    columns = zip(*(result["instances"] for result in results), strict=True)
    return [
        statistics.mean(seconds(instance, hardware) for instance in column)
        for column in columns
    ]


def mean_remote_percent(results: Sequence[Result]) -> list[float]:
    """Of each instance's DRAM accesses, over the repetitions.

    Counted by the emulator, or by the processor. Where nothing counts them, its pages
    stand for them.
    """

    def percent(instance: ResultInstance) -> float:
        if counts := instance["counts"]:
            total = counts["local"] + counts["remote"] + counts["elsewhere"]
            return 100 * counts["remote"] / total
        loads = instance.get("loads")
        if loads and any(loads.values()):
            return 100 * loads["remote"] / (loads["local"] + loads["remote"])
        return 100 - local_pages_percent(instance)

    columns = zip(*(result["instances"] for result in results), strict=True)
    return [
        statistics.mean(percent(instance) for instance in column) for column in columns
    ]


def slowdowns(times: Iterable[float], baseline: Iterable[float]) -> list[float]:
    return [time / unmerged for time, unmerged in zip(times, baseline, strict=True)]


def fairness(slowdown: Sequence[float]) -> float:
    """The paper's V-B, for any number of instances."""
    return min(slowdown) / max(slowdown)
