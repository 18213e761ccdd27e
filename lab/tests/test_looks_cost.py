# SPDX-License-Identifier: GPL-2.0-only
"""What looks cost virtual machines: what is made of what the machine found."""

import json
from pathlib import Path

import pytest

from nuksmlab import machine
from nuksmlab.bench import __main__ as bench
from nuksmlab.bench import host, looks, report
from nuksmlab.bench.looks import Took
from nuksmlab.workload import EndedError

HOST: host.Host = {
    "processor": "a CPU",
    "kernel": "6.1",
    "load_before": 0.25,
    "shared_cache_kib": 8192,
}


def turns(
    *longer: float, permille: int = looks.PERMILLE[looks.LOOKS], replicas: int = 5
) -> list[Took]:
    """With looks, so many times as long as without, turn by turn."""
    return [
        {
            "run": run,
            "seconds": 2.0 * (1 if run["config"] == looks.NONE else times),
            "look_us": 0
            if run["config"] == looks.NONE
            else round(2.0 * times * permille * 1000),
            "replicas": replicas if run["config"] == looks.REPLICAS else 0,
        }
        for turn, times in enumerate(longer)
        for run in looks.runs(looks.FULL, 0)
        if run["turn"] == turn
    ]


def missed(results: list[Took]) -> list[str]:
    return [goal.what for goal in looks.render(results, HOST).goals if not goal.holds]


def test_all_configurations_are_in_each_turn_and_take_turns() -> None:
    runs = looks.runs(looks.QUICK, 0)
    first, second = ([r["config"] for r in runs if r["turn"] == t] for t in (0, 1))
    assert sorted(first) == sorted(second) == sorted(looks.CONFIGS)
    assert first != second


def test_turns_that_a_boot_did_not_end_do_not_count() -> None:
    results = turns(1.1, 1.1, 1.1)
    assert looks.whole_turns(results) == results
    assert looks.whole_turns(results[:-1]) == results[: -len(looks.CONFIGS)]


def test_the_report_says_how_many_boots_ended() -> None:
    results = turns(1.1, 1.1)
    assert "2 turns in 1 boots, 0 of which ended" in looks.render(results, HOST).text
    results[-1]["run"]["boot"] = 1
    assert "2 turns in 2 boots, 1 of which ended" in looks.render(results, HOST).text


@pytest.mark.parametrize(
    ("status", "said", "reset"),
    [(0, "", True), (0, '{"', True), (0, "Kernel panic - not", False), (-9, "", False)],
)
def test_only_who_is_reset_without_a_word_may_be_the_emulators_fault(
    status: int, said: str, *, reset: bool
) -> None:
    assert looks.was_reset(EndedError("skewed 0", status, said)) == reset


def boots(
    monkeypatch: pytest.MonkeyPatch, folder: Path, ended: int
) -> list[list[tuple[int, str]]]:
    """What boots are to make, of which the first ones end in their second turn."""
    asked: list[list[tuple[int, str]]] = []

    def boot(*arguments: object, **_: object) -> None:
        output = arguments[4]
        assert isinstance(output, Path)
        plan = json.loads((output / "plan.json").read_text())
        asked.append([(run["turn"], run["config"]) for run in plan])
        made = plan[:4] if len(asked) <= ended else plan
        took = turns(1.1)[0]
        lines = [json.dumps({**took, "look_us": 9, "run": run}) for run in made]
        (output / "samples.jsonl").write_text("\n".join(lines))

    monkeypatch.setattr(report, "OUTPUT", folder)
    monkeypatch.setattr(machine, "boot_for_guests", boot)
    bench.looked_at("looks", folder, looks.Extent(1, 1, turns=9, repetitions=1))
    return asked


def test_what_a_boot_did_not_end_is_made_in_another_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = boots(monkeypatch, tmp_path, 1)
    assert second == first[3:]
    results = json.loads((tmp_path / "looks.json").read_text())
    assert [(r["run"]["turn"], r["run"]["config"]) for r in results] == first
    assert [r["run"]["boot"] for r in results] == [0] * 3 + [1] * 24


def test_boots_that_always_end_are_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert len(boots(monkeypatch, tmp_path / "some", looks.MOST_ENDED)) == 4
    with pytest.raises(machine.MachineError, match="too many"):
        boots(monkeypatch, tmp_path / "more", looks.MOST_ENDED + 1)


def test_all_goals_can_hold() -> None:
    assert missed(turns(1.19, 1.19)) == []


def test_looks_that_cost_miss_the_goal() -> None:
    assert missed(turns(1.21, 1.21)) == [
        "looks by default: operations take longer, in %, at most 1.0"
    ]


def test_turns_that_differ_too_much_tell_nothing() -> None:
    assert missed(turns(1.1, 0.9)) == [
        "looks by default: the standard error of that, at most 0.2"
    ]


def test_where_nobody_looked_or_there_were_no_replicas_nothing_was_measured() -> None:
    none = "looks in each turn that is to have some, µs, at least 1"
    assert missed(turns(1.0, 1.0, permille=0)) == [none]
    assert missed(turns(1.0, 1.0, replicas=0)) == [
        "replicas in each turn that is to have some, at least 1"
    ]


def test_table_has_what_was_measured() -> None:
    text = looks.render(turns(1.1, 1.1), HOST).text
    assert "| looks | 2.200 (2.200-2.200) | 0.50 ± 0.00 | 100.0 |" in text
