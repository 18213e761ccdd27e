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


def cost(config: str, turn: int, us: float) -> Cost:
    return {
        "config": config,
        "repetition": turn // 2,
        "turn": turn % 2,
        "new_us": us,
        "steady_us": 0.5,
        "saved_pages": 77,
    }


def costs(*each: float) -> list[Cost]:
    """A turn for each figure, two in a boot."""
    return [
        cost(config, turn, us)
        for turn, with_domains in enumerate(each or (1.0,) * 4)
        for config, us in ((domains.ONE, 1.0), (domains.EACH, with_domains))
    ]


def missed(costs: list[Cost]) -> list[str]:
    goals = domains.render(costs, HOST).goals
    return [goal.what for goal in goals if not goal.holds]


def test_configurations_take_turns_and_all_are_in_each_boot() -> None:
    runs = [domains.runs(domains.FULL, boot) for boot in range(2)]
    for boot in runs:
        names = [run["config"] for run in boot]
        assert names.count(domains.ONE) == names.count(domains.EACH) == 20
    assert runs[0][0]["config"] != runs[1][0]["config"]


def test_all_goals_can_hold() -> None:
    assert missed(costs()) == []


def test_domains_that_cost_miss_the_goal() -> None:
    assert missed(costs(1.011, 1.011, 1.011, 1.011)) == [
        "scans until all is merged: 64 domains cost more, in %, at most 1.0"
    ]


def test_turns_that_differ_too_much_tell_nothing() -> None:
    assert missed(costs(1.02, 0.98, 1.02, 0.98)) == [
        "scans until all is merged: the standard error of that, at most 0.5"
    ]


def test_a_turn_is_compared_with_itself() -> None:
    slow = [cost(r["config"], 2, 3 * r["new_us"]) for r in costs(1.005)]
    assert missed(costs(1.005, 1.005) + slow) == []


def test_other_savings_miss_the_goal() -> None:
    wrong = costs()
    wrong[-1]["saved_pages"] = 76
    assert missed(wrong) == ["pages saved, the same"]
