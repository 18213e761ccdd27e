# SPDX-License-Identifier: GPL-2.0-only
"""What is made of the scans of what was scanned before, and of tenants that come."""

import itertools
from typing import Any

import pytest

from nuksmlab.bench import host, steady
from nuksmlab.bench.records import PAGE_BYTES
from nuksmlab.bench.steady import Arrival, New, Run, Steady

HOST: host.Host = {
    "processor": "a CPU",
    "kernel": "6.1",
    "load_before": 0.25,
    "shared_cache_kib": 8192,
}
# Of a scan of all pages; what the goals ask for is reached by far.
SECONDS = {"stock": 3.0, "stock smart_scan": 0.4, "before": 0.9, "ours": 0.03}
RUN: Run = {
    "experiment": "steady",
    "config": "ours",
    "workload": "random",
    "mib": 4,
    "repetition": 1,
}
PAGES = 2048  # of two tenants


def scan(began: float, **grown: int) -> dict[str, Any]:
    return {
        "began": began,
        "ended": began + 1,
        "before": dict.fromkeys(grown, 5),
        "after": {name: 5 + count for name, count in grown.items()},
    }


def one(config: str, touch: str, percent: int, repetition: int) -> Steady:
    touched = PAGES * percent // 100
    return {
        "config": config,
        "workload": "random",
        "touched_percent": percent,
        "touch": touch,
        "repetition": repetition,
        "pages_scanned": PAGES,
        "touched_pages": touched,
        "cpu_seconds": SECONDS[config],
        "read_bytes": touched * PAGE_BYTES,
    }


def everything() -> tuple[list[New], list[Steady], list[Arrival]]:
    repetitions = range(3)
    new: list[New] = [
        {
            "config": config,
            "workload": workload,
            "repetition": repetition,
            "cpu_seconds": 2.0 if config == "ours" else 2.5,
            "merged_pages": 99,
        }
        for workload in ("worst", "mix")
        for config in steady.NEW_CONFIGS
        for repetition in repetitions
    ]
    scans = [
        one(*which)
        for which in itertools.product(
            steady.CONFIGS, steady.TOUCHES, steady.PERCENTS, repetitions
        )
    ]
    arrivals: list[Arrival] = [
        {
            "config": config,
            "paced": paced,
            "tenant": tenant,
            "repetition": repetition,
            "scans": 1 if config == "ours" else 2,
            "seconds": 0.1 if config == "ours" else 0.3,
        }
        for config in steady.ARRIVAL_CONFIGS
        for paced in (False, True)
        for tenant in range(2, steady.TENANTS + 1)
        for repetition in repetitions
    ]
    return new, scans, arrivals


def test_a_result_is_the_sum_of_its_scans() -> None:
    sample = {
        "run": RUN,
        "touch": "write",
        "touched_percent": 10,
        "touched_pages": 400,
        "scans": [scan(at, summed=3, compared_bytes=100) for at in (10.0, 20.0)],
    }
    result = steady.steady_result(sample, lambda began, _: began)
    assert result["cpu_seconds"] == 30.0
    assert result["pages_scanned"] == 2 * PAGES
    assert result["read_bytes"] == 2 * (3 * PAGE_BYTES + 2 * 100)
    assert (result["config"], result["touched_pages"]) == ("ours", 400)


def test_an_arrival_counts_the_scans_until_it_is_merged() -> None:
    sample = {"run": RUN, "tenant": 3, "scans": [scan(1.0), scan(2.0)]}
    result = steady.arrival_result(sample, lambda _, ended: ended)
    assert (result["scans"], result["seconds"], result["tenant"]) == (2, 5.0, 3)


def test_a_paced_arrival_is_by_the_clock() -> None:
    paced: Run = {**RUN, "experiment": "paced"}
    times = {"began": 10.0, "ended": 12.5, "full_scans": 1}
    result = steady.arrival_result({"run": paced, "tenant": 3, **times}, lambda *_: 9.0)
    assert (result["paced"], result["scans"], result["seconds"]) == (True, 1, 2.5)


def test_each_configuration_has_its_turn_at_being_the_first() -> None:
    firsts = {
        next(r for r in steady.runs(steady.QUICK, n) if r["experiment"] == "steady")[
            "config"
        ]
        for n in range(4)
    }
    assert firsts == set(steady.CONFIGS)
    kinds = {(r["experiment"], r["workload"]) for r in steady.runs(steady.FULL, 0)}
    assert kinds == {
        *(("steady", workload) for workload in ("random", "mixed")),
        *((kind, "equal") for kind in ("arrival", "paced")),
        *(("new", workload) for workload in ("worst", "best", "random", "mix")),
    }


def test_goals_hold_where_the_figures_do() -> None:
    assert all(goal.holds for goal in steady.goals(*everything()))


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({"cpu_seconds": 0.2}, "`stock` takes at least 20"),
        ({"cpu_seconds": 0.2}, "`stock smart_scan` takes at least 3"),
        ({"cpu_seconds": 0.2}, "`before` takes at least 5"),
        ({"read_bytes": PAGES * PAGE_BYTES}, "1 % write: pages read"),
    ],
)
def test_one_bad_repetition_misses_a_goal(change: dict[str, Any], missed: str) -> None:
    new, scans, arrivals = everything()
    for result in scans:
        if result["config"] == "ours" and result["repetition"] == 2:
            result.update(change)  # type: ignore[typeddict-item]
    goals = [str(g) for g in steady.goals(new, scans, arrivals) if not g.holds]
    assert any(missed in goal for goal in goals)


def test_what_is_new_may_be_slower_once_but_not_twice() -> None:
    new, scans, arrivals = everything()
    for times, missed in ((1, []), (2, ["mix, new: at most the time before"])):
        for result in new:
            if result["workload"] == "mix" and result["repetition"] < times:
                result["cpu_seconds"] = 2.6 if result["config"] == "ours" else 2.5
        goals = steady.goals(new, scans, arrivals)
        assert [goal.what for goal in goals if not goal.holds] == missed


def test_a_slow_arrival_misses_a_goal() -> None:
    new, scans, arrivals = everything()
    for result in arrivals:
        if result["config"] == "ours" and result["tenant"] in (2, 3):
            result["scans"], result["seconds"] = 2, 0.2
    missed = [g.what for g in steady.goals(new, scans, arrivals) if not g.holds]
    assert missed == [
        "tenant 2: at most 0.6 of the CPU time before",
        "tenant 2: merged in one scan",
        "tenant 3: merged in one scan",
        "tenant 2: at most 0.6 of the time before, by the clock",
        "tenant 3: at most 0.6 of the time before, by the clock",
    ]


def test_tables_have_all_that_was_measured() -> None:
    text = steady.render(*everything(), HOST).text
    assert "| 100 % | 1464.844 (1464.844-1464.844) |" in text
    assert "| 2 | 2; 0.300 (0.300-0.300) |" in text
    assert "| worst | 2.500 (2.500-2.500) | 2.000 (2.000-2.000) | 0.800 (0" in text
    assert text.count("holds") == len(steady.goals(*everything()))
    assert text.endswith("3 boots, a CPU, Linux 6.1, load 0.2 before.\n")
