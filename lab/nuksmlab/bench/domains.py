# SPDX-License-Identifier: GPL-2.0-only
"""What merge domains cost: plan, results, table.

Tenants in pairs that are equal to each other and to nobody else, all in one domain or
each pair in its own: the same pages are merged.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from nuksmlab.bench.goals import Goal, Report, listing
from nuksmlab.bench.host import Host
from nuksmlab.bench.records import PAGE_BYTES, CpuSeconds, Scan
from nuksmlab.bench.steady import cpu, spread, turned
from nuksmlab.bench.table import markdown

PAIRS = 64
ONE, EACH = "one domain", f"{PAIRS} domains"
COSTS = (ONE, EACH)
EQUAL_PERCENT = 30  # of each pair's pages; the others are nobody else's
SETTLING_SCANS = 3
SCANS = 8
TOUCHED_PERCENT = 10
MOST_COST = 1.01


class Run(TypedDict):
    config: str
    mib: int  # of each tenant
    repetition: int


class Cost(TypedDict):
    """An entry of domains.json."""

    config: str
    repetition: int
    new_us: float  # of ksmd's CPU time per page, in the two scans until all is merged
    steady_us: float  # per page and scan, with some written between scans
    saved_pages: int


@dataclass(frozen=True)
class Extent:
    mib: int
    turns: int  # of both configurations in each boot
    repetitions: int


FULL = Extent(2, 8, 5)
QUICK = Extent(1, 2, 1)


def name(run: Run) -> str:
    return run["config"]


def runs(extent: Extent, repetition: int) -> list[Run]:
    """One boot: configurations take turns at being the first."""
    return [
        {"config": config, "mib": extent.mib, "repetition": repetition}
        for turn in range(extent.turns)
        for config in turned(COSTS, turn + repetition)
    ]


def cost_result(sample: dict[str, Any], cpu_seconds: CpuSeconds) -> Cost:
    run = sample["run"]
    pages = 2 * PAIRS * run["mib"] * 2**20 // PAGE_BYTES

    def microseconds(kind: str) -> float:
        scans: list[Scan] = sample[kind]
        seconds = cpu(scans, cpu_seconds)
        return float(seconds / pages / len(scans) * 1e6)

    return {
        "config": run["config"],
        "repetition": run["repetition"],
        "new_us": microseconds("new"),
        "steady_us": microseconds("steady"),
        "saved_pages": sample["saved_pages"],
    }


def ratios(results: Sequence[Cost], of: Callable[[Cost], float]) -> list[float]:
    """Of each boot: the median turn with a domain for each pair to that with one."""

    def middle(config: str, repetition: int) -> float:
        mine = [r for r in results if r["config"] == config]
        return statistics.median(of(r) for r in mine if r["repetition"] == repetition)

    repetitions = sorted({r["repetition"] for r in results})
    return [middle(EACH, n) / middle(ONE, n) for n in repetitions]


COSTED: Mapping[str, Callable[[Cost], float]] = {
    "scans until all is merged": lambda cost: cost["new_us"],
    f"scans with {TOUCHED_PERCENT} % written": lambda cost: cost["steady_us"],
}


def cost_goals(results: Sequence[Cost]) -> list[Goal]:
    """The median boot decides: others use the host's caches, too."""
    saved = {config: set[int]() for config in COSTS}
    for result in results:
        saved[result["config"]].add(result["saved_pages"])
    return [
        *(
            Goal(
                f"{what}: {EACH} / {ONE}, at most {MOST_COST}",
                ratio,
                ratio <= MOST_COST,
            )
            for what, of in COSTED.items()
            for ratio in (statistics.median(ratios(results, of)),)
        ),
        Goal("pages saved, the same", max(saved[EACH]), saved[EACH] == saved[ONE]),
    ]


def cost_table(results: Sequence[Cost]) -> str:
    rows = []
    for what, of in COSTED.items():
        figures = [
            spread([of(r) for r in results if r["config"] == config])
            for config in COSTS
        ]
        rows.append([what, *figures, spread(ratios(results, of))])
    head = [f"{PAIRS} pairs of tenants", *(f"{c}, µs a page" for c in COSTS), "ratio"]
    return markdown(head, rows)


def render(costs: Sequence[Cost], host: Host) -> Report:
    goals = cost_goals(costs)
    boots = len({cost["repetition"] for cost in costs})
    parts = (
        cost_table(costs),
        listing(goals),
        f"Measured: medians (least-most) of {boots} boots, {host['processor']}, Linux "
        f"{host['kernel']}, load {host['load_before']:.1f} before.\n",
    )
    return Report("\n\n".join(parts), goals)
