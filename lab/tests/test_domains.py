# SPDX-License-Identifier: GPL-2.0-only
"""What merge domains cost: what is made of what the guest found."""

from nuksmlab.bench import domains, host
from nuksmlab.bench.domains import Cost

HOST: host.Host = {
    "processor": "a CPU",
    "kernel": "6.1",
    "load_before": 0.25,
    "shared_cache_kib": 8192,
}


def cost(config: str, repetition: int, us: float) -> Cost:
    return {
        "config": config,
        "repetition": repetition,
        "new_us": us,
        "steady_us": 0.5,
        "saved_pages": 77,
    }


def costs(each: float = 1.0) -> list[Cost]:
    us = {domains.ONE: 1.0, domains.EACH: each}
    return [cost(config, n, us[config]) for n in range(3) for config in us]


def missed(costs: list[Cost]) -> list[str]:
    goals = domains.render(costs, HOST).goals
    return [goal.what for goal in goals if not goal.holds]


def test_configurations_take_turns_and_all_are_in_each_boot() -> None:
    runs = [domains.runs(domains.FULL, boot) for boot in range(2)]
    for boot in runs:
        names = [run["config"] for run in boot]
        assert names.count(domains.ONE) == names.count(domains.EACH) == 8
    assert runs[0][0]["config"] != runs[1][0]["config"]


def test_all_goals_can_hold() -> None:
    assert missed(costs()) == []


def test_domains_that_cost_miss_the_goal() -> None:
    assert missed(costs(each=1.011)) == [
        "scans until all is merged: 64 domains / one domain, at most 1.01"
    ]


def test_other_savings_miss_the_goal() -> None:
    wrong = costs()
    wrong[-1]["saved_pages"] = 76
    assert missed(wrong) == ["pages saved, the same"]
