# SPDX-License-Identifier: GPL-2.0-only
"""What scans cost a program on another CPU: the program, and what is made of it."""

import json
import os
import subprocess
from typing import Any

import pytest

from nuksmlab import paths
from nuksmlab.bench import host, neighbour
from nuksmlab.bench.neighbour import Neighbour, Second

HOST: host.Host = {
    "processor": "a CPU",
    "kernel": "6.1",
    "load_before": 0.25,
    "shared_cache_kib": 8192,
}
P99 = {"off": 100, "stock": 300, "stock smart_scan": 150, "before": 200, "ours": 110}


def one(config: str, repetition: int) -> Neighbour:
    return {
        "config": config,
        "repetition": repetition,
        "p99_ns": P99[config],
        "operations_per_second": 1e8 / P99[config],
        "cpu_seconds": 1.8,
        "merged_pages": 77,
    }


def everything() -> list[Neighbour]:
    return [one(config, number) for number in range(3) for config in P99]


def second(began: float, p99: int) -> Second:
    return {"began": began, "ended": began + 1, "operations": 1000 * p99, "p99_ns": p99}


def test_a_result_is_of_the_seconds_within_its_periods() -> None:
    sample: dict[str, Any] = {
        "run": {"config": "ours", "mib": 4, "repetition": 2},
        "began": 10.5,
        "ended": 15.0,
        "scans": [{"began": 11.0, "ended": 11.25}, {"began": 12.0, "ended": 12.25}],
        "merged_pages": 9,
    }
    # The first and the last are partly of others' periods.
    seconds = [second(at, p99) for at, p99 in ((10, 1), (11, 7), (12, 5), (13, 6))]
    seconds += [second(14.5, 900)]
    result = neighbour.result(sample, lambda began, ended: ended - began, seconds)
    assert result == {
        "config": "ours",
        "repetition": 2,
        "p99_ns": 6,
        "operations_per_second": 6000,
        "cpu_seconds": 0.5,
        "merged_pages": 9,
    }


def test_each_configuration_has_its_turn_at_being_the_first() -> None:
    firsts = {neighbour.runs(neighbour.FULL, n)[0]["config"] for n in range(5)}
    assert firsts == set(neighbour.CONFIGS)


def test_ratios_are_to_off_in_the_same_boot() -> None:
    results = everything()
    for entry in results:
        if entry["repetition"] == 1:
            entry["p99_ns"] *= 10
    p99, throughput = neighbour.slower(results, "stock")
    assert p99 == [3.0, 3.0, 3.0]
    assert throughput == pytest.approx([3.0, 3.0, 3.0])


def test_goals_hold_where_the_figures_do() -> None:
    results = everything()
    assert all(goal.holds for goal in neighbour.goals(results))
    for entry in results:
        if entry["config"] == "ours" and entry["repetition"] > 0:
            entry["p99_ns"] = 140
    missed = [goal.what for goal in neighbour.goals(results) if not goal.holds]
    assert missed == ["ours: p99 / off's, at most 1.3"]


def test_the_table_has_all_that_was_measured() -> None:
    text = neighbour.render(everything(), HOST).text
    assert "| stock | 300 (300-300) | 333 (333-333) | 3.00 (3.00-3.00) |" in text
    assert "0.100 (0.100-0.100) | 77 (77-77) |" in text
    assert "a table of 4096 KiB in a cache of 8192 KiB" in text


def test_the_program_says_each_second_how_quick_it_was() -> None:
    cpu = max(os.sched_getaffinity(0))
    with subprocess.Popen(
        [paths.NEIGHBOUR, str(cpu), "64"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as program:
        assert program.stdout
        assert program.stdin
        said: Second = json.loads(program.stdout.readline())
        program.stdin.close()
        program.wait()
    assert program.returncode == 0
    assert said["ended"] - said["began"] > 0.9
    assert said["operations"] > 0
    assert 0 < said["p99_ns"] <= 65536


@pytest.mark.parametrize("arguments", [[], ["0"], ["0", "0"], ["-1", "64"]])
def test_the_program_says_what_it_takes(arguments: list[str]) -> None:
    done = subprocess.run(
        [paths.NEIGHBOUR, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "usage: neighbour CPU KIB" in done.stderr
