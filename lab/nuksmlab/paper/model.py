# SPDX-License-Identifier: GPL-2.0-only
"""From counts to run times, and from these to the paper's figures of merit.

A run takes its instructions' time and that of its DRAM accesses, each at its latency,
by default one after the other. Links that are full are not modelled: one thread for
each node, waiting for each access, moves 0.7 GiB/s.
"""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nuksmlab.counter import Counts
from nuksmlab.paper.trial import Result, ResultInstance, local_pages_percent

PAPERS_MACHINE = Path(__file__).with_name("machine.toml")


@dataclass(frozen=True)
class Hardware:
    """The machine that run times are modelled for."""

    name: str
    ghz: float
    cycles_per_instruction: float
    local_ns: float
    remote_ns: float
    overlap: float = 1.0  # misses that are waited for at the same time
    walks: float = 0.0  # accesses to page tables in local memory, for each miss
    misses: float = 1.0  # of the last-level cache, for each one counted


def read_hardware(path: Path) -> Hardware:
    return Hardware(**tomllib.loads(path.read_text()))


def modelled_seconds(counts: Counts, hardware: Hardware) -> float:
    local = counts["local"] + counts["elsewhere"]
    remote = counts["remote"]
    computing = (
        counts["instructions"] * hardware.cycles_per_instruction / hardware.ghz * 1e-9
    )
    walking = (local + remote) * hardware.walks * hardware.local_ns
    waiting = local * hardware.local_ns + remote * hardware.remote_ns + walking
    return computing + hardware.misses * waiting * 1e-9 / hardware.overlap


def seconds(instance: ResultInstance, hardware: Hardware) -> float:
    """Modelled where accesses were counted, else as measured."""
    counts = instance["counts"]
    if counts is None:
        return instance["answer"]["seconds"]
    return modelled_seconds(counts, hardware)


def seconds_of(results: Sequence[Result], hardware: Hardware) -> list[list[float]]:
    """Of each repetition, each instance."""
    return [
        [seconds(instance, hardware) for instance in result["instances"]]
        for result in results
    ]


def remote_percent(instance: ResultInstance) -> float:
    """Of its DRAM accesses, counted by the emulator, or by the processor.

    Where nothing counts them, its pages stand for them.
    """
    if counts := instance["counts"]:
        total = counts["local"] + counts["remote"] + counts["elsewhere"]
        return 100 * counts["remote"] / total
    loads = instance.get("loads")
    if loads and any(loads.values()):
        return 100 * loads["remote"] / (loads["local"] + loads["remote"])
    return 100 - local_pages_percent(instance)


def remote_percent_of(results: Sequence[Result]) -> list[list[float]]:
    """Of each repetition, each instance."""
    return [
        [remote_percent(instance) for instance in result["instances"]]
        for result in results
    ]


def slowdowns(times: Iterable[float], baseline: Iterable[float]) -> list[float]:
    return [time / unmerged for time, unmerged in zip(times, baseline, strict=True)]


def fairness(slowdown: Sequence[float]) -> float:
    """The paper's V-B, for any number of instances."""
    return min(slowdown) / max(slowdown)
