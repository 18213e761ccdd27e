# SPDX-License-Identifier: GPL-2.0-only
"""Goals of replicas, from made-up results: which engines do not reach them?"""

from collections.abc import Callable
from functools import partial
from unittest import mock

import pytest
from made_up import (
    HARDWARE,
    experiment_of,
    failed,
    free_nothing,
    observe_all,
    put,
    save_less,
)

from nuksmlab.paper import use
from nuksmlab.paper.extent import QUICK
from nuksmlab.paper.trial import Result, Use
from nuksmlab.workload import Instance


def replicated(
    change: Callable[[Result], None],
    hot: int = 5,
    apart: float = 0.95,
    kind: str = use.EQUAL,
) -> list[str]:
    """Goals of replicas that fail where results that reach them are changed."""
    experiment = experiment_of("replicas")
    results = observe_all(experiment.parts(QUICK))
    for result in results:
        if result["trial"]["use"]["kind"] == use.EQUAL:
            result["trial"]["use"]["kind"] = kind
        result["trial"]["use"]["hot_percent"] = hot
        percent = result["trial"]["use"]["budget_percent"]
        if result["trial"]["use"]["kind"] == use.APART:
            for instance in result["instances"]:
                put(instance, apart)
        if percent:
            taken = result["pages_sharing"] * percent // 100
            result["pages_sharing"] -= taken
            result["learned"] = {
                "made": taken,
                "folded": 0,
                "migrated": 0,
                "late": 0,
                "replicas": taken,
                "most": taken,
                "glance_ms": 0,
                "refused": 0,
            }
            for instance in result["instances"]:
                put(instance, 0.95)
            change(result)
    return failed(experiment.section(results, HARDWARE).checks)


def more_for_one(result: Result) -> None:
    put(result["instances"][0], 0.97)


def none_made(result: Result) -> None:
    for instance in result["instances"]:
        put(instance, 0.5)


@pytest.mark.parametrize(
    ("kind", "hot", "goal"),
    [
        (use.EQUAL, 10, "10 % hot, nuKSM, replicas 5 %: {against}"),
        (use.EQUAL, 50, "50 % hot, nuKSM, replicas 5 %: {against}"),
        (
            use.ZIPF,
            0,
            "nuKSM, replicas 5 %: less remote than nuKSM's, of what could be",
        ),
    ],
)
def test_a_budget_that_buys_nothing_is_found_out(
    kind: str, hot: int, goal: str
) -> None:
    """Also where it is too small for all that is hot."""
    against = "remote accesses, %, against what has to be"
    assert replicated(lambda _: None, hot=hot, kind=kind) == []
    separator = " " if hot else ", "
    assert replicated(none_made, hot=hot, kind=kind) == [
        f"2 nodes, {kind}{separator}{goal.format(against=against)}"
    ]


def test_replicas_are_judged_by_pages_where_accesses_are_not_counted() -> None:
    def uncounted(result: Result) -> None:
        for instance in result["instances"]:
            instance["counts"] = None

    assert replicated(uncounted) == []


def test_replicas_for_one_tenant_alone_are_found_out() -> None:
    """Where all is hot there is no more reason for his than for others'."""
    name = "2 nodes, equal 100 % hot, nuKSM, replicas 5 %"
    assert replicated(lambda _: None, hot=100) == []
    uneven = f"{name}: a tenant's part of all remote accesses, %"
    assert replicated(more_for_one, hot=100) == [uneven]


def test_pages_that_are_not_where_they_are_hot_are_found_out() -> None:
    missed = "remote accesses, %, as pages are where they are hot"
    assert replicated(lambda _: None, apart=0.92) == [
        f"2 nodes, apart 5 % hot, nuKSM: {missed}"
    ]


def one_more(result: Result) -> None:
    assert result["learned"]
    result["learned"]["most"] += 1


def restless(result: Result) -> None:
    assert result["learned"]
    pages = sum(instance["pages"] for instance in result["instances"])
    result["learned"]["late"] = 1 + pages // 1000


def nine_percent_remote(result: Result) -> None:
    for instance in result["instances"]:
        put(instance, 0.91)


def more_remote_than_without(result: Result) -> None:
    for instance in result["instances"]:
        put(instance, 0.4)


@pytest.mark.parametrize(
    ("kind", "goals"),
    [
        (use.SETTLED, ["remote accesses, %, against nuKSM's"]),
        (
            use.RELOCATED,
            [
                "remote accesses, %, against nuKSM's",
                "remote accesses, 10 looks later, %",
            ],
        ),
    ],
)
def test_copies_that_keep_pages_from_who_has_moved_are_found_out(
    kind: str, goals: list[str]
) -> None:
    name = f"2 nodes, {kind} 5 % hot, nuKSM, replicas 5 %"
    assert replicated(lambda _: None, kind=kind) == []
    assert replicated(more_remote_than_without, kind=kind) == [
        f"{name}: {goal}" for goal in goals
    ]


@pytest.mark.parametrize(
    ("change", "goals"),
    [
        (lambda _: None, []),
        (one_more, ["replicas, at any time"]),
        (restless, ["changes in 20 looks, % of what is mapped"]),
        (nine_percent_remote, ["remote accesses, %, against what has to be"]),
        (partial(save_less, pages=101), ["saved, % of KSM's"]),
        (free_nothing, ["memory that became free, of what counters say is saved"]),
    ],
)
def test_replicas_that_cost_more_or_buy_less_are_found_out(
    change: Callable[[Result], None], goals: list[str]
) -> None:
    name = "2 nodes, equal 5 % hot, nuKSM, replicas 5 %"
    assert replicated(change) == [f"{name}: {goal}" for goal in goals]


@pytest.mark.parametrize(
    ("kind", "looks"), [(use.RELOCATED, [24, 10]), (use.SETTLED, [24, 30])]
)
def test_a_tenant_goes_to_another_ones_node_and_so_many_looks_come(
    monkeypatch: pytest.MonkeyPatch, kind: str, looks: list[int]
) -> None:
    watch = mock.Mock()
    monkeypatch.setattr(use, "Watch", lambda _: watch)
    instances = [mock.MagicMock(spec=Instance, pages=100, node=n) for n in range(2)]
    for instance in instances:
        instance.equal_pages = instance.pages
    wanted: Use = {
        "kind": kind,
        "hot_percent": 5,
        "budget_percent": 0,
        "across": True,
        "learns": True,
    }
    use.merge(mock.Mock(), wanted, instances)
    instances[1].move.assert_called_once_with(0)
    instances[0].move.assert_not_called()
    assert watch.look.call_args_list == [mock.call(number) for number in looks]
