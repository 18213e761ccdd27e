# SPDX-License-Identifier: GPL-2.0-only
"""How quickly ksmd merges, from made-up passes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from nuksmlab.bench.records import Scan
from nuksmlab.paper import model, report
from nuksmlab.paper.extent import FULL, QUICK
from nuksmlab.paper.merging import experiment, figures, plan
from nuksmlab.paper.merging import section as merging_section
from nuksmlab.paper.merging.records import Copies, Guests, Images, Run, Step
from nuksmlab.paper.runner import Complete
from nuksmlab.paper.section import Section

PAGES_PER_MIB = 256
DONE = cast(Complete, {"expected": {plan.WORKLOAD: "abc"}})


def one_pass(mib: int, began: float = 0.0, compares: int = 0) -> Scan:
    """That merges so much."""
    pages = mib * PAGES_PER_MIB
    return {
        "began": began,
        "ended": began + 1,
        "before": {"pages_sharing": 100, "content_compares": 0},
        "after": {"pages_sharing": 100 + pages, "content_compares": compares * pages},
    }


def step(added: str, mib: int, seconds: float) -> Step:
    """In the second pass, that takes and compares so much; the first as long again."""
    return {
        "added": added,
        "passes": [one_pass(0), one_pass(mib, compares=round(seconds))],
        "cpu_seconds": [seconds, seconds],
    }


def seconds(run: Run) -> float:
    slow = run["case"] != plan.BEST and run["configuration"] == plan.OLD
    return 8.0 if slow else 1.0


def copies(run: Run) -> Copies:
    best = run["case"] == plan.BEST
    return {
        "run": run,
        "steps": [
            step(str(copy), run["mib"] if best or copy > 1 else 0, seconds(run))
            for copy in range(1, plan.COPIES + 1)
        ],
        "read_before": [1_310_720, 2_000_000],
        "read_after": [327_680 if best else 1_310_720],
        "bad_pages": 0,
    }


def guests(run: Run) -> Guests:
    steps = [step("1 and 2", 90, seconds(run)), step("3", 90, seconds(run))]
    return {"run": run, "steps": steps, "answers": ["abc"] * 3}


def images(run: Run) -> Images:
    steps = [step(name, 90, seconds(run)) for name in plan.image_names(run["guests"])]
    return {"run": run, "steps": steps, "bad_pages": 0}


def all_images() -> list[Images]:
    return [images(run) for run in plan.images(QUICK)]


def of_images(results: Sequence[Images]) -> Section:
    return merging_section.of_images(results, DONE, "raw/i")


def all_copies() -> list[Copies]:
    return [copies(run) for run in plan.copies(QUICK)]


def all_guests() -> list[Guests]:
    return [guests(run) for run in plan.guests(QUICK)]


def section(of_copies: Sequence[Copies], of_guests: Sequence[Guests]) -> Section:
    return merging_section.section(
        [
            merging_section.of_copies(of_copies, DONE, "raw/c"),
            merging_section.of_guests(of_guests, DONE, "raw/g"),
        ]
    )


def failed(made: Section) -> list[str]:
    return [check.what for check in made.checks if not check.holds]


def test_all_goals_hold_where_our_index_is_quicker() -> None:
    assert failed(section(all_copies(), all_guests())) == []


def test_how_often_each_was_run_is_said() -> None:
    copied = [copies(run) for run in plan.copies(FULL)]
    virtual = [guests(run) for run in plan.guests(FULL)]
    text = " ".join(section(copied, virtual).paragraphs)
    assert "Copies are merged 3 times with either index" in text
    assert "Virtual machines are merged twice with either index" in text
    text = " ".join(section(all_copies(), all_guests()).paragraphs)
    assert "Copies are merged twice with either index" in text
    assert "Virtual machines are merged once with either index" in text
    text = " ".join(of_images(all_images()).paragraphs)
    assert "Images are merged twice with either index" in text


def test_only_passes_that_merge_make_a_rate() -> None:
    merged = figures.merged(step("2", 256, 2.0))
    assert merged.mib_per_second == 128
    assert merged.all_seconds == 4.0
    assert merged.compares_per_page == 2


def test_a_pass_that_merges_next_to_nothing_is_none_that_merges() -> None:
    made: Step = {
        "added": "3",
        "passes": [one_pass(1000), one_pass(1)],
        "cpu_seconds": [2.0, 8.0],
    }
    merged = figures.merged(made)
    assert merged.mib_per_second == 500


def test_time_in_passes_that_merge_nothing_is_found_out() -> None:
    several, of_guests = [copies(run) for run in plan.copies(FULL)], all_images()
    for each in (*several, *of_guests):
        if each["run"]["configuration"] == plan.OURS:
            for one in each["steps"]:
                one["cpu_seconds"][0] = 100.0
    what = "all copies in all passes: times as quick with our index"
    assert failed(section(several, all_guests())) == [f"worst, {what}", f"best, {what}"]
    assert failed(of_images(of_guests)) == [
        "all images in all passes: times as quick with our index"
    ]


def test_what_has_no_twin_is_to_be_quick_too() -> None:
    several = [copies(run) for run in plan.copies(FULL)]
    for each in several:
        if each["run"]["configuration"] == plan.OURS:
            each["steps"][0]["cpu_seconds"][1] = 100.0
    missed = failed(section(several, all_guests()))
    assert "worst, all copies in all passes: times as quick with our index" in missed


def test_comparisons_in_passes_that_merge_nothing_are_found_out() -> None:
    virtual = all_guests()
    for each in virtual:
        if each["run"]["configuration"] == plan.OURS:
            for one in each["steps"]:
                one["passes"][0]["after"]["content_compares"] = 1_000_000
    assert [what.split(":")[0] for what in failed(section(all_copies(), virtual))] == [
        *("virtual machines, 1 and 2", "virtual machines, 3"),
    ]


def test_an_index_that_merges_what_it_has_not_compared_is_found_out() -> None:
    virtual = all_guests()
    for each in virtual:
        if each["run"]["configuration"] == plan.OURS:
            for one in each["steps"]:
                one["passes"][1]["after"]["content_compares"] = 0
    assert failed(section(all_copies(), virtual)) == [
        f"virtual machines, {which}: comparisons for each page merged with our index"
        for which in ("1 and 2", "3")
    ]


def test_old_index_under_our_name_is_found_out() -> None:
    slow, virtual = all_copies(), all_guests()
    for each in (*slow, *virtual):
        if each["run"]["configuration"] == plan.OURS:
            mib = 90 if each["run"]["case"] == plan.REAL else each["run"]["mib"]
            each["steps"] = [step(one["added"], mib, 9.0) for one in each["steps"]]
    assert [what.split(":")[0] for what in failed(section(slow, virtual))] == [
        *("worst, copy 2", "worst, copy 3", "worst, copy 4"),
        "best, median of all copies",
        *("worst, all copies in all passes", "best, all copies in all passes"),
        *("virtual machines, 1 and 2", "virtual machines, 3"),
    ]


def test_an_index_that_is_slow_once_is_found_out() -> None:
    several = [copies(run) for run in plan.copies(FULL)]
    (slow, *_) = [
        each
        for each in several
        if each["run"]["case"] == plan.WORST
        and each["run"]["configuration"] == plan.OURS
    ]
    mib = slow["run"]["mib"]
    slow["steps"] = [step(one["added"], mib, 9.0) for one in slow["steps"]]
    assert [what.split(":")[0] for what in failed(section(several, all_guests()))] == [
        *("worst, copy 2", "worst, copy 3", "worst, copy 4"),
        "worst, all copies in all passes",
    ]


def test_a_wrong_byte_is_found_out() -> None:
    broken = all_copies()
    broken[-1]["bad_pages"] = 1
    (what,) = failed(section(broken, all_guests()))
    assert "wrong byte" in what


def test_images_goals_hold_where_our_index_is_quicker(tmp_path: Path) -> None:
    made = of_images(all_images())
    assert failed(made) == []
    report.write(tmp_path, [made], [], {}, model.read_hardware(model.PAPERS_MACHINE))
    _, first, second = (tmp_path / "merging-images.csv").read_text().splitlines()
    assert first.startswith("image-1,256,90,11,90,8.0,16.00,2.00,8.0,1.0,raw/i#1 ")
    assert second.startswith("image-2,")


def test_what_is_wrong_with_images_is_found_out() -> None:
    results = all_images()
    results[0]["bad_pages"] = 1
    assert failed(of_images(results)) == ["pages that differ from their image"]
    results = all_images()
    for each in results:
        if each["run"]["configuration"] == plan.OURS:
            each["steps"][1] = step("image-2", 88, 9.0)
    assert failed(of_images(results)) == [
        "image-2: MiB merged by the two indexes, difference in %",
        "image-2: times as many MiB per second with our index",
    ]


def test_a_wrong_answer_is_found_out() -> None:
    broken = all_guests()
    broken[0]["answers"][2] = "abd"
    made = section(all_copies(), broken)
    (check,) = [check for check in made.checks if not check.holds]
    assert check.found == "wrong: run 1, virtual machine 3"


def test_a_copy_that_is_half_merged_is_found_out() -> None:
    broken = all_copies()
    for each in broken:
        if each["run"]["case"] == plan.WORST:
            each["steps"][2] = step("3", 128, seconds(each["run"]))
    assert failed(section(broken, all_guests())) == [
        "worst: share of each copy that is merged"
    ]


@pytest.mark.parametrize("configuration", plan.INDEXES)
def test_an_index_that_merges_nothing_is_found_out(configuration: str) -> None:
    broken, virtual = all_copies(), all_guests()
    for each in (*broken, *virtual):
        if each["run"]["configuration"] == configuration:
            each["steps"] = [step(one["added"], 0, 1.0) for one in each["steps"]]
    what = failed(section(broken, virtual))
    assert "worst: share of each copy that is merged" in what
    assert "virtual machines, 3: MiB merged by the two indexes, difference in %" in what


def test_slow_reading_of_merged_memory_is_found_out() -> None:
    broken = all_copies()
    for each in broken:
        each["read_after"] = [2_000_000]
    assert len(failed(section(broken, all_guests()))) == 4


def test_slow_reading_in_one_repetition_is_found_out() -> None:
    broken = [copies(run) for run in plan.copies(FULL)]
    for each in broken:
        if each["run"]["repetition"] == 1:
            each["read_after"] = [20 * time for time in each["read_after"]]
    assert [what.split(":")[1] for what in failed(section(broken, all_guests()))] == [
        " reading merged memory, of the time before"
    ] * 4


def test_tables_have_what_was_published_beside_what_was_measured(
    tmp_path: Path,
) -> None:
    made = section(all_copies(), all_guests())
    hardware = model.read_hardware(model.PAPERS_MACHINE)
    report.write(tmp_path, [made], [], {}, hardware)
    lines = (tmp_path / "merging-copies.csv").read_text().splitlines()
    assert lines[0].endswith(
        'mail (published),"paper, MB, of any copy (published)",raw samples'
    )
    assert lines[1].startswith(
        "worst,2,256,256,32,256,8.0,16.00,2.00,8.0,1.0,10.7,10.62,raw/c#1 raw/c#2"
    )
    assert lines[4].startswith("best,1,256,256,256,256,1.0,2.00,2.00,1.0,1.0,256.0")
    lines = (tmp_path / "merging-reads.csv").read_text().splitlines()
    assert lines[3].startswith("best,KSM,20.0,5.0,0.25,29.0,6.1,0.21")
    lines = (tmp_path / "merging-machines.csv").read_text().splitlines()
    assert lines[2].startswith("3,16,90,11,90,8.0,16.00,2.00,8.0,1.0,80.70,raw/g#1")
    for name in ("copies", "reads", "machines"):
        assert (tmp_path / f"merging-{name}.png").stat().st_size > 0


def test_the_host_adds_cpu_seconds_to_what_the_guest_observed(tmp_path: Path) -> None:
    observed = copies(plan.copies(QUICK)[0])
    observed["steps"] = [
        {"added": "1", "passes": [one_pass(0, 10), one_pass(4, 20)], "cpu_seconds": []}
    ]
    (tmp_path / "observed.jsonl").write_text(f"{json.dumps(observed)}\n")
    experiment.add_cpu_seconds(tmp_path, lambda began, ended: began + 100 * ended)
    (made,) = experiment.read(tmp_path)
    assert made["steps"][0]["cpu_seconds"] == [1110.0, 2120.0]
    assert made["run"] == observed["run"]
