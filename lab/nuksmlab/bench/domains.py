# SPDX-License-Identifier: GPL-2.0-only
"""What merge domains cost: plan, results, table.

Tenants in pairs that are equal to each other and to nobody else, all in one domain or
each pair in its own: the same pages are merged. Each turn has tenants of its own: what
was merged and un-merged before lies scattered, which costs more than domains could.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from nuksmlab.bench import estimate
from nuksmlab.bench.estimate import Estimate
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
MOST_COST = 1.0  # percent
SHARPNESS = 0.5  # percent; a mean with a larger error does not tell one percent


class Run(TypedDict):
    config: str
    mib: int  # of each tenant
    repetition: int
    turn: int


class Cost(TypedDict):
    """An entry of domains.json."""

    config: str
    repetition: int
    turn: int
    new_us: float  # of ksmd's CPU time per page, in the two scans until all is merged
    steady_us: float  # per page and scan, with some written between scans
    saved_pages: int


@dataclass(frozen=True)
class Extent:
    mib: int
    turns: int  # of both configurations in each boot
    repetitions: int


FULL = Extent(2, 20, 5)
QUICK = Extent(1, 2, 1)


def name(run: Run) -> str:
    return run["config"]


def runs(extent: Extent, repetition: int) -> list[Run]:
    """One boot: configurations take turns at being the first."""
    return [
        {
            "config": config,
            "mib": extent.mib,
            "repetition": repetition,
            "turn": turn,
        }
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
        "turn": run["turn"],
        "new_us": microseconds("new"),
        "steady_us": microseconds("steady"),
        "saved_pages": sample["saved_pages"],
    }


def more(results: Sequence[Cost], of: Callable[[Cost], float]) -> Estimate:
    """What domains cost more; a turn has both configurations, one after the other."""
    turns: dict[tuple[int, int], dict[str, float]] = {}
    for result in results:
        turn = turns.setdefault((result["repetition"], result["turn"]), {})
        turn[result["config"]] = of(result)
    return estimate.more((turn[ONE], turn[EACH]) for turn in turns.values())


COSTED: Mapping[str, Callable[[Cost], float]] = {
    "scans until all is merged": lambda cost: cost["new_us"],
    f"scans with {TOUCHED_PERCENT} % written": lambda cost: cost["steady_us"],
}


def cost_goals(results: Sequence[Cost]) -> list[Goal]:
    goals = []
    for what, of in COSTED.items():
        cost = more(results, of)
        holds = cost.mean <= MOST_COST
        goals.append(
            Goal(
                f"{what}: {EACH} cost more, in %, at most {MOST_COST}", cost.mean, holds
            )
        )
        goals.append(
            Goal(
                f"{what}: the standard error of that, at most {SHARPNESS}",
                cost.error,
                cost.error <= SHARPNESS,
            )
        )
    saved = {
        config: {r["saved_pages"] for r in results if r["config"] == config}
        for config in COSTS
    }
    same = saved[EACH] == saved[ONE]
    return [*goals, Goal("pages saved, the same", max(saved[EACH]), same)]


def cost_table(results: Sequence[Cost]) -> str:
    rows = []
    for what, of in COSTED.items():
        figures = [
            spread([of(r) for r in results if r["config"] == config])
            for config in COSTS
        ]
        rows.append([what, *figures, str(more(results, of))])
    units = (f"{config}, µs a page" for config in COSTS)
    head = [f"{PAIRS} pairs of tenants", *units, "costs more, %"]
    return markdown(head, rows)


def render(costs: Sequence[Cost], host: Host) -> Report:
    goals = cost_goals(costs)
    boots = len({cost["repetition"] for cost in costs})
    turns = len(costs) // len(COSTS)
    parts = (
        cost_table(costs),
        listing(goals),
        f"Measured: {turns} turns in {boots} boots, medians (least-most); what domains "
        f"cost more, geometric mean ± standard error; {host['processor']}, Linux "
        f"{host['kernel']}, load {host['load_before']:.1f} before.\n",
    )
    return Report("\n\n".join(parts), goals)
