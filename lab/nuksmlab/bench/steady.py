# SPDX-License-Identifier: GPL-2.0-only
"""Scanning what was scanned before, and tenants that come: plan, results, tables.

new:     two processes, as plan has them, and the two scans until they are merged
steady:  two processes whose pages are merged as far as they are equal; then scans
         with a part of the pages read or written between them
arrival: a tenant that is known, and others like it that come one by one
paced:   the same at a speed that a host would have, by the clock
"""

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from nuksmlab.bench import plan
from nuksmlab.bench.goals import Goal, Report, listing
from nuksmlab.bench.host import Host
from nuksmlab.bench.records import PAGE_BYTES, CpuSeconds, Scan, growth
from nuksmlab.bench.table import markdown

CONFIGS = ("stock", "stock smart_scan", "before", "ours")
# With smart_scan, what came first is seldom looked at any more: the second tenant is
# not merged within 20 scans.
ARRIVAL_CONFIGS = ("stock", "before", "ours")
NEW_CONFIGS = ("before", "ours")
NEW_ROUNDS = 4  # in each boot: a run takes a fraction of a second
# Of the pages of a tenant in percent, by the tenant's names for them.
WORKLOADS = {
    "random": {"equal": 0, "private": 100},
    "mixed": {"equal": 30, "private": 70},
    "equal": {"equal": 100},
}
COPIES = 2
SECOND, TENANTS = 2, 4
# In round figures, what a host with memory to save scans: 50,000 pages a second.
PACE = {"pages_to_scan": 1000, "sleep_millisecs": 20}
TOUCHES = ("read", "write")
PERCENTS = (0, 1, 10, 50, 100)

# Stock's smart_scan leaves a page out more and more often: in the end for 8 scans,
# then it looks at it once. So many scans are measured together, that each
# configuration is seen in all of its phases.
SCANS = 9
SETTLING_SCANS = 24
MOST_SCANS = 20


class Run(TypedDict):
    experiment: str  # new, steady, arrival or paced
    config: str
    workload: str
    mib: int  # of each tenant
    repetition: int


class New(TypedDict):
    """An entry of new.json: the first two scans of two copies."""

    config: str
    workload: str
    repetition: int
    cpu_seconds: float  # ksmd's, of both
    merged_pages: int


class Steady(TypedDict):
    """An entry of steady.json: SCANS scans."""

    config: str
    workload: str
    touched_percent: int
    touch: str  # read or write, before each scan
    repetition: int
    pages_scanned: int  # that there are, in each scan; some were perhaps left out
    touched_pages: int
    cpu_seconds: float  # ksmd's
    read_bytes: int  # of contents: summed up, or compared


class Arrival(TypedDict):
    """An entry of arrival.json: one tenant's pages, all merged with those before."""

    config: str
    paced: bool
    tenant: int  # the first to come is 2
    repetition: int
    scans: int
    seconds: float  # ksmd's CPU time; if paced, from its start, by the clock


@dataclass(frozen=True)
class Extent:
    workloads: tuple[str, ...]
    mib: int
    repetitions: int


FULL = Extent(("random", "mixed"), 128, 5)
QUICK = Extent(("random",), 64, 1)


def name(run: Run) -> str:
    return f"{run['experiment']}, {run['workload']}, {run['mib']} MiB, {run['config']}"


def turned(configs: tuple[str, ...], repetition: int) -> tuple[str, ...]:
    first = repetition % len(configs)
    return (*configs[first:], *configs[:first])


def runs(extent: Extent, repetition: int) -> list[Run]:
    """One repetition: the configurations take turns at being the first."""
    return [
        {
            "experiment": experiment,
            "config": config,
            "workload": workload,
            "mib": extent.mib,
            "repetition": repetition,
        }
        for experiment, workload, configs, turn in (
            *(
                ("new", workload, NEW_CONFIGS, repetition + number)
                for number in range(NEW_ROUNDS)
                for workload in plan.WORKLOADS
            ),
            *(("steady", w, CONFIGS, repetition) for w in extent.workloads),
            ("arrival", "equal", ARRIVAL_CONFIGS, repetition),
            ("paced", "equal", ARRIVAL_CONFIGS, repetition),
        )
        for config in turned(configs, turn)
    ]


def read_bytes(scans: Iterable[Scan]) -> int:
    """Pages summed up are read once; where two are compared, both are read."""
    total = 0
    for scan in scans:
        summed, compared = growth(scan, "summed"), growth(scan, "compared_bytes")
        assert summed is not None and compared is not None
        total += summed * PAGE_BYTES + 2 * compared
    return total


def cpu(scans: Iterable[Scan], cpu_seconds: CpuSeconds) -> float:
    return sum(cpu_seconds(scan["began"], scan["ended"]) for scan in scans)


def new_result(sample: dict[str, Any], cpu_seconds: CpuSeconds) -> New:
    run, scans = sample["run"], sample["scans"]
    return {
        "config": run["config"],
        "workload": run["workload"],
        "repetition": run["repetition"],
        "cpu_seconds": cpu(scans, cpu_seconds),
        "merged_pages": scans[-1]["after"]["pages_sharing"],
    }


def steady_result(sample: dict[str, Any], cpu_seconds: CpuSeconds) -> Steady:
    run, scans = sample["run"], sample["scans"]
    return {
        "config": run["config"],
        "workload": run["workload"],
        "touched_percent": sample["touched_percent"],
        "touch": sample["touch"],
        "repetition": run["repetition"],
        "pages_scanned": len(scans) * COPIES * run["mib"] * 2**20 // PAGE_BYTES,
        "touched_pages": sample["touched_pages"],
        "cpu_seconds": cpu(scans, cpu_seconds),
        "read_bytes": read_bytes(scans),
    }


def arrival_result(sample: dict[str, Any], cpu_seconds: CpuSeconds) -> Arrival:
    run, paced = sample["run"], sample["run"]["experiment"] == "paced"
    return {
        "config": run["config"],
        "paced": paced,
        "tenant": sample["tenant"],
        "repetition": run["repetition"],
        "scans": sample["full_scans"] if paced else len(sample["scans"]),
        "seconds": sample["ended"] - sample["began"]
        if paced
        else cpu(sample["scans"], cpu_seconds),
    }


def microseconds(results: Sequence[Steady]) -> list[float]:
    return [r["cpu_seconds"] * 1e6 / r["pages_scanned"] for r in results]


def spread(values: Sequence[float], digits: int = 3) -> str:
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({least:.{digits}f}-{most:.{digits}f})"


def chosen(results: Sequence[Steady], **wanted: object) -> list[Steady]:
    return [r for r in results if all(r[k] == v for k, v in wanted.items())]  # type: ignore[literal-required]


def ratios(results: Sequence[Steady], to: str, **wanted: object) -> list[float]:
    """Ours against another configuration, by repetition: each pair is of one boot."""
    mine = {r["repetition"]: r for r in chosen(results, config="ours", **wanted)}
    others = {r["repetition"]: r for r in chosen(results, config=to, **wanted)}
    return [
        others[number]["cpu_seconds"] / mine[number]["cpu_seconds"] for number in mine
    ]


def new_ratios(results: Sequence[New], workload: str) -> list[float]:
    """Ours against before, by repetition: all rounds of one boot."""
    seconds: dict[tuple[str, int], float] = {}
    for r in results:
        if r["workload"] == workload:
            key = r["config"], r["repetition"]
            seconds[key] = seconds.get(key, 0.0) + r["cpu_seconds"]
    return [
        seconds["ours", repetition] / seconds["before", repetition]
        for config, repetition in seconds
        if config == "ours"
    ]


def new_table(results: Sequence[New]) -> str:
    rows = []
    for workload in dict.fromkeys(r["workload"] for r in results):
        mine = [r for r in results if r["workload"] == workload]
        by_config = [[r for r in mine if r["config"] == c] for c in NEW_CONFIGS]
        rows.append(
            [
                workload,
                *(spread([r["cpu_seconds"] for r in of]) for of in by_config),
                spread(new_ratios(results, workload)),
                *(spread([r["merged_pages"] for r in of], 0) for of in by_config),
            ]
        )
    head = [
        "new; s of CPU, two scans",
        *NEW_CONFIGS,
        "ours / before",
        *(f"pages merged, {config}" for config in NEW_CONFIGS),
    ]
    return markdown(head, rows)


def steady_tables(results: Sequence[Steady]) -> str:
    parts = []
    workloads = dict.fromkeys(r["workload"] for r in results)
    for workload, touch in itertools.product(workloads, TOUCHES):
        parts.append(f"{workload}, pages {touch} between scans; µs of CPU per page:")
        rows = []
        for percent in PERCENTS:
            wanted = {"workload": workload, "touch": touch, "touched_percent": percent}
            cells = [
                spread(microseconds(chosen(results, config=config, **wanted)))
                for config in CONFIGS
            ]
            mine = chosen(results, config="ours", **wanted)
            read = statistics.median(
                r["read_bytes"] / r["pages_scanned"] / PAGE_BYTES for r in mine
            )
            times = [
                f"{statistics.median(ratios(results, to, **wanted)):.1f}"
                for to in CONFIGS[:-1]
            ]
            rows.append([f"{percent} %", *cells, *times, f"{read:.2%}"])
        head = [
            "touched",
            *CONFIGS,
            *(f"{to} / ours" for to in CONFIGS[:-1]),
            "ours reads of all pages",
        ]
        parts.append(markdown(head, rows))
    return "\n\n".join(parts)


def arrival_table(results: Sequence[Arrival], paced: bool) -> str:
    rows = []
    results = [r for r in results if r["paced"] == paced]
    for tenant in range(SECOND, TENANTS + 1):
        cells = []
        for config in ARRIVAL_CONFIGS:
            mine = [
                r for r in results if r["config"] == config and r["tenant"] == tenant
            ]
            scans = "/".join(str(n) for n in sorted({r["scans"] for r in mine}))
            cells.append(f"{scans}; {spread([r['seconds'] for r in mine])}")
        rows.append([str(tenant), *cells])
    seconds = "seconds by the clock, paced" if paced else "seconds of CPU"
    return markdown([f"tenant: scans; {seconds}", *ARRIVAL_CONFIGS], rows)


def goals(
    new: Sequence[New], steady: Sequence[Steady], arrival: Sequence[Arrival]
) -> list[Goal]:
    """What leaving pages unread is to achieve; the worst repetition decides.

    Where it is to change nothing, the median one does.
    """
    result = []
    for workload in dict.fromkeys(r["workload"] for r in new):
        middle = statistics.median(new_ratios(new, workload))
        what = f"{workload}, new: at most the time before"
        result.append(Goal(what, middle, middle <= 1))
    for touch, percent, to, wanted in (
        *((t, p, "stock", 20) for t in TOUCHES for p in (0, 1)),
        *((t, p, "stock smart_scan", 3) for t in TOUCHES for p in (0, 1)),
        *((t, p, "before", 5) for t in TOUCHES for p in (0, 1)),
        *((t, 10, "stock", 8) for t in TOUCHES),
    ):
        least = min(
            ratios(steady, to, workload="random", touch=touch, touched_percent=percent)
        )
        what = f"{percent} % {touch}: `{to}` takes at least {wanted} times as long"
        result.append(Goal(what, least, least >= wanted))
    for touch in TOUCHES:
        mine = chosen(
            steady, config="ours", workload="random", touch=touch, touched_percent=1
        )
        most = max(r["read_bytes"] / PAGE_BYTES / r["touched_pages"] for r in mine)
        what = f"1 % {touch}: pages read, at most 1.2 of those touched"
        result.append(Goal(what, most, most <= 1.2))
    return result + [
        goal
        for paced in (False, True)
        for tenant in range(SECOND, TENANTS + 1)
        for goal in arrival_goals(arrival, tenant, paced)
    ]


def arrival_goals(results: Sequence[Arrival], tenant: int, paced: bool) -> list[Goal]:
    mine = [r for r in results if (r["tenant"], r["paced"]) == (tenant, paced)]
    before = {r["repetition"]: r for r in mine if r["config"] == "before"}
    came = [r for r in mine if r["config"] == "ours"]
    most = max(r["seconds"] / before[r["repetition"]]["seconds"] for r in came)
    of = "time before, by the clock" if paced else "CPU time before"
    quick = Goal(f"tenant {tenant}: at most 0.6 of the {of}", most, most <= 0.6)
    if paced:  # it comes in the midst of a scan
        return [quick]
    scans = max(r["scans"] for r in came)
    at_once = Goal(f"tenant {tenant}: merged in one scan", scans, scans == 1)
    # For those that follow, what is left of ksmd's work is merging itself.
    return [quick, at_once] if tenant == SECOND else [at_once]


def render(
    new: Sequence[New], steady: Sequence[Steady], arrival: Sequence[Arrival], host: Host
) -> Report:
    repetitions = len({r["repetition"] for r in steady})
    reached = goals(new, steady, arrival)
    parts = (
        new_table(new),
        steady_tables(steady),
        arrival_table(arrival, paced=False),
        arrival_table(arrival, paced=True),
        listing(reached),
        f"Measured: medians (least-most) of {repetitions} boots, "
        f"{host['processor']}, Linux {host['kernel']}, load "
        f"{host['load_before']:.1f} before.\n",
    )
    return Report("\n\n".join(parts), reached)
