# SPDX-License-Identifier: GPL-2.0-only
"""The paper's figures, from made-up observations of made-up placements."""

import html
import json
import os
import random
import tarfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from made_up import (
    HARDWARE,
    PAGES,
    counts,
    experiment_of,
    failed,
    free_nothing,
    observe,
    observe_all,
    put,
    save_less,
    section,
)

from nuksmlab import accelerator, numa, paths
from nuksmlab.counter import Caches, node_options, qemu_options
from nuksmlab.ksm import Ksm
from nuksmlab.machine import Machine, MachineError
from nuksmlab.paper import (
    experiments,
    extent,
    model,
    report,
    runner,
    sensitivity,
    where,
)
from nuksmlab.paper.__main__ import pack
from nuksmlab.paper.busy.plan import AT_ONCE
from nuksmlab.paper.extent import CORRECTED, FULL, NUKSM, OFF, QUICK, STOCK, Extent
from nuksmlab.paper.fairness import section as fairness_section
from nuksmlab.paper.model import Hardware
from nuksmlab.paper.runner import Complete
from nuksmlab.paper.section import UNKNOWN, all_measured, of_model
from nuksmlab.paper.trial import Result
from nuksmlab.paper.where import Host


@pytest.mark.parametrize("name", ["fairness", "priority", "guests", "nodes", "busy"])
def test_all_goals_hold_where_pages_are_placed_as_they_should(name: str) -> None:
    assert failed(section(name).checks) == []


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("fairness", "btree, nuKSM: fairness"),
        ("fairness", "cg, nuKSM: remote shares of the accesses apart, in points"),
        ("fairness", "xsbench, nuKSM: points off half of the pages"),
        ("priority", "btree, nuKSM, C-1:10: points off the published share"),
        ("nodes", "random_access, 8 instances, nuKSM: fairness"),
        ("busy", "25 % hot, nuKSM: fairness"),
        (
            "busy",
            "by Zipf's law, nuKSM: "
            "remote shares of the accesses apart, in points, against KSM's",
        ),
        (
            "nodes",
            "btree, 8 instances, nuKSM, priorities: "
            "off the weights' shares, of what is allowed",
        ),
    ],
)
def test_stock_placement_under_our_name_is_found_out(name: str, goal: str) -> None:
    assert goal in failed(section(name, breaking=NUKSM.name).checks)


def test_a_databases_priority_is_judged_by_its_run_time() -> None:
    goals = [
        f"mysql, {name}, C-1:10: instance 1's run is shorter, by %"
        for name in (NUKSM.name, CORRECTED.name)
    ]
    made = section("priority", breaking=NUKSM.name, size=extent.FULL)
    assert set(goals) & set(failed(made.checks)) == {goals[0]}
    made = section("priority", size=extent.FULL)
    rows = {table.name: [row.cells for row in table.rows] for table in made.tables}
    of_database = {
        name: [cells for cells in rows[name] if cells[0] == "mysql"] for name in rows
    }
    assert {name: len(found) for name, found in of_database.items()} == {
        "figure-4": 0,
        "figure-4-bands": 0,
        "table-3": 0,
        "figure-7": 6,
        "figure-7-bands": 1,
    }
    assert all(UNKNOWN not in cells[2:5] for cells in of_database["figure-7"])
    assert failed(made.checks) == []


def test_nothing_follows_from_accesses_that_were_not_counted() -> None:
    (experiment, *_) = experiments.TRIALS
    results = observe_all(experiment.parts(QUICK))
    for instance in (one for result in results for one in result["instances"]):
        instance["counts"] = None
    checks = experiment.section(results, HARDWARE).checks
    assert not [one for one in checks if "no node's memory" in one.what]


def test_where_one_has_all_pages_when_just_merged_it_is_found_out() -> None:
    what = "remote shares of the accesses apart, in points, against KSM's"
    goal = f"{AT_ONCE.name}: {what}"
    assert f"none hot, {goal}" in failed(section("busy", AT_ONCE.name).checks)


def broken(change: Callable[[Result], None]) -> set[str]:
    """Goals of two equal instances that fail where nuKSM's results are changed."""
    (experiment, *_) = experiments.TRIALS
    results = observe_all(experiment.parts(extent.FULL))
    for result in results:
        if result["trial"]["configuration"] == NUKSM.name:
            change(result)
    return set(failed(experiment.section(results, HARDWARE).checks))


def of_each_workload(goal: str) -> set[str]:
    return {f"{name}, nuKSM: {goal}" for name in extent.WORKLOADS}


def test_a_hundredth_less_is_less_saved_but_of_live_programs_some_come_and_go() -> None:
    goals = of_each_workload("MiB saved, against KSM's")
    assert broken(partial(save_less, pages=100)) & goals == set()
    live = {"mysql, nuKSM: MiB saved, against KSM's"}
    assert broken(partial(save_less, pages=101)) & goals == goals - live
    assert broken(partial(save_less, pages=301)) >= goals


def give(share: float, result: Result, *, turn: int) -> None:
    """That share of all pages to one instance, with `turn` to the other by turns."""
    favoured = (result["trial"]["repetition"] * turn) % 2
    for number, instance in enumerate(result["instances"]):
        local = share if number == favoured else 1 - share
        put(instance, local)


@pytest.mark.parametrize("share", [0.6, 0.8, 1.0])
@pytest.mark.parametrize("turn", [0, 1], ids=["one", "by turns"])
def test_who_favours_one_is_found_out_even_if_it_is_another_each_time(
    share: float, turn: int
) -> None:
    found = broken(partial(give, share, turn=turn))
    assert found >= of_each_workload("remote shares of the accesses apart, in points")
    pages = of_each_workload("points off half of the pages")
    assert found >= pages - {"mysql, nuKSM: points off half of the pages"}


def test_a_coin_for_each_page_is_fair_enough() -> None:
    """The paper's own rule, taken literally, where few pages have most accesses."""
    chance = random.Random(1)

    def toss(result: Result) -> None:
        local = chance.gauss(0.5, 0.015)  # as measured of BTree
        for number, instance in enumerate(result["instances"]):
            put(instance, local if number == 0 else 1 - local)
            node = str(instance["node"])
            here = round(PAGES * chance.gauss(0.5, 0.004))
            instance["pages_by_node"] = {node: here, f"{node}0": PAGES - here}

    assert broken(toss) == set()


def test_what_a_coin_may_do_nuksm_place_may_not() -> None:
    def half(share: float) -> set[str]:
        (experiment, *_) = experiments.TRIALS
        results = observe_all(experiment.parts(extent.FULL))
        for result in results:
            if result["trial"]["configuration"] in (NUKSM.name, CORRECTED.name):
                for number, instance in enumerate(result["instances"]):
                    here = round(PAGES * (share if number == 0 else 1 - share))
                    node = str(instance["node"])
                    instance["pages_by_node"] = {node: here, f"{node}0": PAGES - here}
        return set(failed(experiment.section(results, HARDWARE).checks))

    assert half(0.5) == set()
    off = half(0.502)
    assert off == {
        f"{name}, {CORRECTED.name}: points off half of the pages"
        for name in extent.WORKLOADS
        if name != "mysql"
    }


def test_what_is_counted_as_saved_has_to_be_free() -> None:
    goals = of_each_workload("memory that became free, of what counters say is saved")
    assert broken(free_nothing) == goals


def test_first_page_says_what_of_the_saving_became_free() -> None:
    def remark(freed: float) -> str:
        (experiment, *_) = experiments.TRIALS
        results = observe_all(experiment.parts(QUICK))
        for result in results:
            result["pages_freed"] = round(freed * result["pages_sharing"])
        claims = experiment.section(results, HARDWARE).claims
        (saved,) = [one.remark for one in claims if "memory saved" in one.what]
        return saved

    assert remark(0.97) == "by KSM's counters; 97 % of that became free"
    assert "; 0 % of that" in remark(0)


def test_the_papers_own_table_2_reaches_the_goals() -> None:
    table = fairness_section.published()["table_2"].values()
    assert all(row["fairness_nuksm"] >= fairness_section.FAIR for row in table)
    assert all(row["performance"] >= fairness_section.COMBINED for row in table)
    saved = (row["saved_nuksm"] / row["saved_ksm"] for row in table)
    assert all(ratio >= fairness_section.SAVED for ratio in saved)


def test_no_goal_is_one_that_modelled_times_cannot_miss() -> None:
    (experiment, *_) = experiments.TRIALS
    made = experiment.section(observe_all(experiment.parts(QUICK)), HARDWARE)
    ends = (": fairness", ": combined performance")
    implied = [check for check in made.checks if check.what.endswith(ends)]
    assert len(implied) == 2 * 3 * len(extent.WORKLOADS)
    assert not set(implied) & set(of_model(made).checks)


def test_fair_placement_under_stocks_name_is_found_out() -> None:
    (experiment, *_) = experiments.TRIALS
    parts = experiment.parts(QUICK)
    for part in parts:
        for trial in part.trials:
            if trial["configuration"] == STOCK.name:
                trial["placement"] = "fair"
    checks = experiment.section(observe_all(parts), HARDWARE).checks
    assert "btree: KSM's unfairness shows, difference in %" in failed(checks)


def test_huge_pages_that_were_not_there_prove_nothing() -> None:
    experiment = experiment_of("busy")
    results = observe_all(experiment.parts(QUICK))
    results[-1]["huge_kib"] = [4096, 0]
    missing = "none hot, huge pages: of the data, in huge pages before merging"
    assert failed(experiment.section(results, HARDWARE).checks) == [missing]


def test_a_wrong_answer_is_found_out() -> None:
    (experiment, *_) = experiments.TRIALS
    results = observe_all(experiment.parts(QUICK))
    results[3]["instances"][1]["answer"]["checksum"] = "abd"
    (first, *_) = experiment.section(results, HARDWARE).checks
    assert not first.holds
    assert "instance 1" in first.found


@pytest.mark.parametrize("name", ["fairness", "priority", "nodes", "guests", "busy"])
def test_a_write_that_others_see_is_found_out(name: str) -> None:
    experiment = experiment_of(name)
    results = observe_all(experiment.parts(QUICK))
    results[-1]["spoilt"] = 1
    missed = "writes to merged pages that others saw, or that were lost"
    assert failed(experiment.section(results, HARDWARE).checks) == [missed]
    for result in results:
        result["spoilt"] = None  # nobody has tried
    assert failed(experiment.section(results, HARDWARE).checks) == [missed]


def test_run_time_is_instructions_and_accesses_by_latency() -> None:
    hardware = Hardware("any", 2.0, 1.5, 100.0, 150.0)
    seconds = model.modelled_seconds(counts(0, 0.25, 2), hardware)
    assert seconds == pytest.approx(1e6 * 1.5 / 2e9 + 25_000 * 100e-9 + 75_000 * 150e-9)


@pytest.mark.parametrize(
    ("change", "computing", "local", "remote"),
    [
        ({"overlap": 2.0}, 1.0, 0.5, 0.5),
        ({"misses": 2.0}, 1.0, 2.0, 2.0),
        ({"walks": 1.0}, 1.0, 2.0, 2.0 - 1 / 3),
        ({"remote_ns": 180.0}, 1.0, 1.0, 1.2),
    ],
)
def test_a_variant_changes_one_assumption(
    change: dict[str, float], computing: float, local: float, remote: float
) -> None:
    hardware = Hardware("any", 2.0, 1.5, 100.0, 150.0)
    seconds = model.modelled_seconds(counts(0, 0.25, 2), replace(hardware, **change))  # type: ignore[arg-type]
    expected = computing * 1e6 * 1.5 / 2e9
    expected += local * 25_000 * 100e-9 + remote * 75_000 * 150e-9
    assert seconds == pytest.approx(expected)


def test_a_published_figure_is_within_the_band_or_off_it() -> None:
    found = {"least": 10.0, "most": 20.0}
    texts = [sensitivity.position(found, value) for value in (None, 7.0, 10.0, 21.0)]
    assert texts == ["not in the text", "below, by 3", "within", "above, by 1"]
    least = [sensitivity.position(found, one, or_more=True) for one in (7.0, 21.0)]
    assert least == ["within", "above, by 1"]


def test_fairness_is_that_of_the_papers_formula() -> None:
    slowdown = model.slowdowns([10.0, 14.6], [10.0, 10.0])
    assert model.fairness(slowdown) == pytest.approx(1 / 1.46)


def test_counts_are_joined_with_what_was_observed(tmp_path: Path) -> None:
    part = extent.Part("x", Machine(2, 1), Caches(), [])
    trial = extent.trial(QUICK, "btree", OFF, [{"node": 0, "nice": 0}] * 2)
    work = runner.work(trial)
    complete: Complete = {
        "inputs": "",
        "command": "",
        "machine": "",
        "caches": {},
        "kernel": "",
        "programs": {paths.COUNTER.name: ""},
        "expected": {work: "abc"},
        "host": "",
        "seconds": 1.0,
        "finished": "",
    }
    kept = tmp_path / part.name
    kept.mkdir()
    (kept / "complete.json").write_text(json.dumps(complete))
    observed = [observe(trial), observe(trial)]
    (kept / "observed.jsonl").write_text(
        "".join(f"{json.dumps(o)}\n" for o in observed)
    )
    # Instance 1 ended first in the second phase.
    order = [(0, 1), (1, 2), (1, 3), (0, 4)]
    lines = [
        {**counts(0, 1.0, 2), "tenant": tenant, "loads": loads}
        for tenant, loads in order
    ]
    (kept / "counts.jsonl").write_text("".join(f"{json.dumps(c)}\n" for c in lines))
    joined = [
        [instance["counts"]["loads"] for instance in result["instances"]]  # type: ignore[index]
        for result in runner.read(kept)
    ]
    assert joined == [[1, 2], [4, 3]]
    (kept / "counts.jsonl").unlink()
    with pytest.raises(FileNotFoundError):  # pages do not stand for what was counted
        list(runner.read(kept))


def test_report_labels_each_column_and_names_raw_samples(tmp_path: Path) -> None:
    path = report.write(tmp_path, [section("fairness")], ["rest"], {}, HARDWARE)
    text = path.read_text()
    assert '<th class="published">fairness<small>published</small></th>' in text
    assert '<a href="raw/made-up/observed.jsonl">made-up</a>' in text
    assert "Not run, or of an older state: rest" in text
    head = (tmp_path / "table-2.csv").read_text().splitlines()[0]
    assert head.startswith("workload,configuration,fairness (modelled),fairness (publ")
    assert head.endswith("raw samples")
    assert (tmp_path / "figure-3a.png").stat().st_size > 0


NAMES = ("fairness", "priority", "guests", "nodes", "busy")


def said(breaking: str = "") -> dict[str, tuple[str, str]]:
    """Of each claim of the first page, what was found and why it differs."""
    return {
        claim.what: (claim.found, claim.remark)
        for name in NAMES
        for claim in section(name, breaking, extent.FULL).claims
    }


def test_first_page_says_what_was_found(tmp_path: Path) -> None:
    sections = [section(name, size=extent.FULL) for name in NAMES]
    text = report.write(tmp_path, sections, [], {}, HARDWARE).read_text()
    page = html.unescape(text[: text.index("<h2>Goals</h2>")])
    claims = said()
    assert len(claims) == sum(len(one.claims) for one in sections)
    for what, cells in claims.items():
        assert all(f">{cell}<" in page for cell in (what, *cells)), what


@pytest.mark.parametrize(
    "what",
    [
        "nuKSM: fairness",
        "nuKSM: of an instance's accesses to memory, remote, %",
        "In virtual machines: nuKSM: fairness",
        "Four nodes, four and eight instances, nuKSM: fairness",
        "While instances work and ksmd goes on, nuKSM: fairness",
        "Figure 7, C-10:1: the favoured instance's run is shorter by, %",
        "Table III: local share of the merged pages by priority, off the published, "
        "in points",
        "Figure 4, nuKSM: the favoured instance's throughput falls by, %",
    ],
)
def test_first_page_says_another_thing_of_another_engine(what: str) -> None:
    assert said(breaking=NUKSM.name)[what] != said()[what]


def test_what_other_hardware_explains_is_counted() -> None:
    def one(name: str, published: float | None) -> sensitivity.Quantity:
        return sensitivity.Quantity(name, lambda _: [10.0], published, [])

    several = [
        one("a", 10.0),
        one("b", 12.0),
        one("c", None),
        one("d", 9.0),
        one("e", 1.0),
    ]
    text = sensitivity.explained(several, HARDWARE)
    assert text == "explains 1 of 4 (see the table of other hardware), not b, d and e"
    assert "not" not in sensitivity.explained(several[:1], HARDWARE)


def test_figure_9_has_what_is_published_of_uksm(tmp_path: Path) -> None:
    report.write(tmp_path, [section("fairness")], [], {}, HARDWARE)
    head, *rows = (tmp_path / "figure-9.csv").read_text().splitlines()
    assert head.startswith("workload,KSM (modelled),nuKSM (modelled)")
    assert "UKSM (published)" in head
    assert [row.split(",")[0] for row in rows] == ["xsbench", "random_access"]
    assert "46,4,up to 50" in rows[1]


def test_second_nodes_memory_is_where_qemu_reports_it() -> None:
    assert node_options(Machine(3, 1), "7.2.22") == [
        "node=0+1048576",
        "node=2097152+1048576",
        "node=4194304+1048576",
    ]
    assert node_options(Machine(3, 1), "10.0.2") == [
        "node=0+1048576",
        "node=1048576+1048576",
        "node=2097152+1048576",
    ]


def test_memory_with_a_gap_cannot_be_counted_where_qemu_tells_of_it() -> None:
    assert node_options(Machine(2, 1408), "7.2.22")
    assert node_options(Machine(2, 1407), "10.0.2")
    with pytest.raises(MachineError, match="less than 2816 MiB"):
        node_options(Machine(2, 1408), "10.0.2")


def test_only_the_experiment_with_guests_has_any() -> None:
    nested = {
        one.name: {where.has_guests(part) for part in one.parts(QUICK)}
        for one in experiments.TRIALS
    }
    assert nested.pop("guests") == {True}
    assert set.union(*nested.values()) == {False}


def test_each_node_has_the_guest_that_starts_first() -> None:
    parts = experiment_of("guests").parts(FULL)
    firsts = {
        part.name: {trial["instances"][0]["node"] for trial in part.trials}
        for part in parts
    }
    assert firsts["guests-btree-0"] == {0}
    assert firsts["guests-btree-1"] == {1}
    repetitions = [trial["repetition"] for part in parts for trial in part.trials]
    assert set(repetitions) == set(range(FULL.repetitions))


def test_plugin_is_told_where_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerator, "qemu_version", lambda: "10.0.2")
    options = qemu_options(Machine(2, 512), Caches(llc_kib=256), tmp_path)
    assert options.startswith("-plugin file=/")
    assert f"out={tmp_path}/counts.jsonl" in options
    assert "llc_kib=256" in options


def test_run_times_of_real_hardware_are_measured(tmp_path: Path) -> None:
    (experiment, *_) = experiments.TRIALS
    results = observe_all(experiment.parts(QUICK))
    for instance in (one for result in results for one in result["instances"]):
        instance["counts"] = None
    made = all_measured(experiment.section(results, HARDWARE))
    kinds = {column.kind for table in made.tables for column in table.columns}
    assert kinds == {"", "measured", "published"}
    path = report.write(tmp_path, [made], [], {}, None)
    assert "modelled" not in path.read_text().replace(report.STYLE, "")


def test_remote_accesses_are_what_the_processor_counted_or_else_pages() -> None:
    (experiment, *_) = experiments.TRIALS
    (part, *_) = experiment.parts(QUICK)
    result = observe(part.trials[0])
    for instance in result["instances"]:
        instance["counts"] = None
        instance["pages_by_node"] = {str(instance["node"]): 75, "9": 25}
    assert model.remote_percent_of([result]) == [[25, 25]]
    result["instances"][1]["loads"] = {"local": 100, "remote": 300}
    assert model.remote_percent_of([result]) == [[25, 75]]
    result["instances"][1]["loads"] = {"local": 0, "remote": 0}
    assert model.remote_percent_of([result]) == [[25, 25]]


def test_what_a_machine_found_is_one_file(tmp_path: Path) -> None:
    (kept := tmp_path / "paper-host" / "raw").mkdir(parents=True)
    (kept / "observed.jsonl").write_text("{}\n")
    with tarfile.open(pack(kept.parent)) as packed:
        assert "paper-host/raw/observed.jsonl" in packed.getnames()


def test_what_real_hardware_does_not_run_is_said_to_be_run_elsewhere(
    tmp_path: Path,
) -> None:
    host = Host.__new__(Host)  # which a machine of one node cannot be
    found = experiments.Merging().gather(tmp_path, extent.HOST, host, HARDWARE)
    guests = "merging-guests (not with HOST=1)"
    assert found.missing == ["merging-copies", "merging-images", guests]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (([0], True, "0"), "has one node"),
        (([0, 1], False, "0"), "make kernel-deb"),
        (([0, 1], True, "1"), "sysctl kernel.numa_balancing=0"),
    ],
)
def test_a_machine_that_cannot_run_the_trials_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    found: tuple[list[int], bool, str],
    message: str,
) -> None:
    nodes, engine, balancing = found
    monkeypatch.setattr(numa, "online", lambda: nodes)
    monkeypatch.setattr(Ksm, "has_engine", lambda _: engine)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (switch := tmp_path / "numa_balancing").write_text(f"{balancing}\n")
    monkeypatch.setattr(where, "BALANCING", switch)
    with pytest.raises(MachineError, match=message):
        Host()


def test_what_is_not_the_papers_or_of_no_nodes_is_run_by_its_name_only() -> None:
    def names(name: str | None, size: Extent) -> list[str]:
        return [one.name for one in experiments.wanted(name, size)]

    assert "replicas" not in names(None, FULL)
    assert names("replicas", FULL) == ["replicas"]
    assert "pressure" in names(None, FULL)
    assert "pressure" not in names(None, extent.HOST)
    assert names(None, QUICK) == [one.name for one in experiments.ALL]
