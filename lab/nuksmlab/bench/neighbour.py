# SPDX-License-Identifier: GPL-2.0-only
"""What ksmd's scans cost a program on another CPU of the host: plan, results, table.

The guest scans what was scanned before, once in PERIOD_SECONDS, whatever a scan costs;
on the host, on another CPU, runs a program that lives from the cache both share.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from nuksmlab.bench.goals import Goal, Report, listing
from nuksmlab.bench.host import Host
from nuksmlab.bench.records import CpuSeconds
from nuksmlab.bench.steady import cpu, spread, turned
from nuksmlab.bench.table import markdown

OFF = "off"
CONFIGS = (OFF, "stock", "stock smart_scan", "before", "ours")
WORKLOAD = "mixed"
COPIES = 2
TOUCHED_PERCENT = 1
PERIOD_SECONDS = 1.0
# Of smart_scan's nine phases, each once and again.
SCANS = 18
# Half of the cache that both share: what is read beside it throws it out.
CACHE_PART = 2
SMALL_TABLE_KIB = 4096  # where the host does not tell its cache
# Para-ksm (ATC 2025): with an accelerator, the best published for a steady host.
PUBLISHED = 1.3


class Run(TypedDict):
    config: str
    mib: int  # of each tenant
    repetition: int


class Second(TypedDict):
    """What the program says once a second."""

    began: float  # seconds since the epoch
    ended: float
    operations: int
    p99_ns: int


class Neighbour(TypedDict):
    """An entry of neighbour.json: SCANS periods."""

    config: str
    repetition: int
    p99_ns: float  # of its operations; of the seconds, the median one
    operations_per_second: float  # again the median second
    cpu_seconds: float  # ksmd's
    merged_pages: int


@dataclass(frozen=True)
class Extent:
    mib: int
    repetitions: int


FULL = Extent(256, 5)
QUICK = Extent(64, 1)


def name(run: Run) -> str:
    return f"neighbour, {run['mib']} MiB, {run['config']}"


def runs(extent: Extent, repetition: int) -> list[Run]:
    """One repetition: the configurations take turns at being the first."""
    return [
        {"config": config, "mib": extent.mib, "repetition": repetition}
        for config in turned(CONFIGS, repetition)
    ]


def result(
    sample: dict[str, Any], cpu_seconds: CpuSeconds, seconds: Iterable[Second]
) -> Neighbour:
    """Of the program's seconds, those that lie within the guest's periods."""
    within = [
        second
        for second in seconds
        if sample["began"] <= second["began"] and second["ended"] <= sample["ended"]
    ]
    return {
        "config": sample["run"]["config"],
        "repetition": sample["run"]["repetition"],
        "p99_ns": statistics.median(s["p99_ns"] for s in within),
        "operations_per_second": statistics.median(
            s["operations"] / (s["ended"] - s["began"]) for s in within
        ),
        "cpu_seconds": cpu(sample["scans"], cpu_seconds),
        "merged_pages": sample["merged_pages"],
    }


def slower(
    results: Sequence[Neighbour], config: str
) -> tuple[list[float], list[float]]:
    """Times as long, and times as few, as with ksmd off; each pair is of one boot."""
    off = {r["repetition"]: r for r in results if r["config"] == OFF}
    mine = [r for r in results if r["config"] == config]
    return (
        [r["p99_ns"] / off[r["repetition"]]["p99_ns"] for r in mine],
        [
            off[r["repetition"]]["operations_per_second"] / r["operations_per_second"]
            for r in mine
        ],
    )


def table(results: Sequence[Neighbour]) -> str:
    rows = []
    for config in CONFIGS:
        mine = [r for r in results if r["config"] == config]
        p99, throughput = slower(results, config)
        rows.append(
            [
                config,
                spread([r["p99_ns"] for r in mine], 0),
                spread([r["operations_per_second"] / 1000 for r in mine], 0),
                spread(p99, 2),
                spread(throughput, 2),
                spread([r["cpu_seconds"] / SCANS for r in mine]),
                spread([r["merged_pages"] for r in mine], 0),
            ]
        )
    head = [
        "ksmd",
        "p99, ns",
        "1,000 operations/s",
        "p99 / off's",
        "off's operations / these",
        "s of CPU per scan",
        "pages merged",
    ]
    return markdown(head, rows)


def goals(results: Sequence[Neighbour]) -> list[Goal]:
    """The median repetition decides: a neighbour's p99 is also others' doing."""
    return [
        Goal(f"ours: {what}, at most {PUBLISHED}", middle, middle <= PUBLISHED)
        for what, values in zip(
            ("p99 / off's", "off's operations / ours"),
            slower(results, "ours"),
            strict=True,
        )
        for middle in (statistics.median(values),)
    ]


def table_kib(host: Host) -> int:
    """Of the program, so that it lives from the shared cache."""
    return host["shared_cache_kib"] // CACHE_PART or SMALL_TABLE_KIB


def render(results: Sequence[Neighbour], host: Host) -> Report:
    repetitions = len({r["repetition"] for r in results})
    reached = goals(results)
    parts = (
        table(results),
        listing(reached),
        f"Measured: medians (least-most) of {repetitions} boots, a table of "
        f"{table_kib(host)} KiB in a cache of {host['shared_cache_kib']} KiB, "
        f"{host['processor']}, Linux {host['kernel']}, load "
        f"{host['load_before']:.1f} before.\n",
    )
    return Report("\n\n".join(parts), reached)
