# SPDX-License-Identifier: GPL-2.0-only
"""The report on KSM under KVM, from made-up recordings."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from nuksmlab import recordings
from nuksmlab.paper import model, report
from nuksmlab.paper.consolidation import experiment
from nuksmlab.paper.consolidation import section as consolidation
from nuksmlab.paper.consolidation.plan import DIFFERENT, ONE, THREE, TWO
from nuksmlab.paper.consolidation.records import Phase, Recording, Result, Scenario
from nuksmlab.paper.section import Check

HARDWARE = model.read_hardware(model.PAPERS_MACHINE)
CRC = 4711
SAVED = {"one": 100, "two different": 500, "two alike": 2000, "three alike": 4000}


def recording(name: str, pages: Sequence[int]) -> Recording:
    phase: Phase = {"recording": name, "guests_cpu_seconds": 5.0, "seconds": 20.0}
    samples = [recordings.sample(index, count) for index, count in enumerate(pages)]
    return Recording(phase, samples, f"raw/made-up/{name}#2-{len(samples) + 1}")


def result(scenario: Scenario, saved: int, checksum: int = CRC) -> Result:
    return Result(
        scenario["name"],
        recording("without.jsonl", [0, 0, 0]),
        recording("merging.jsonl", [0, saved // 2, saved]),
        [checksum] * len(scenario["kernels"]),
        CRC,
    )


def results(**other: int) -> list[Result]:
    saved = {**SAVED, **{name.replace("_", " "): n for name, n in other.items()}}
    return [result(one, saved[one["name"]]) for one in (ONE, TWO, THREE, DIFFERENT)]


def failed(checks: Sequence[Check]) -> list[str]:
    return [check.what for check in checks if not check.holds]


def test_goals_hold_where_guests_alike_share_more() -> None:
    assert failed(consolidation.section(results()).checks) == []


@pytest.mark.parametrize(
    ("saved", "goal"),
    [
        (
            {"two_different": 2000},
            "pages_shared of two alike guests, against two different",
        ),
        (
            {"three_alike": 2000},
            "pages_sharing of three alike guests, against two alike",
        ),
        ({"two_alike": 100}, "pages_sharing of two alike guests, against one"),
        ({"two_alike": 0}, "two alike: MiB of memory used with KSM"),
    ],
)
def test_each_goal_can_fail(saved: dict[str, int], goal: str) -> None:
    found = failed(consolidation.section(results(**saved)).checks)
    assert [what for what in found if goal in what]


def test_a_guest_that_reads_something_else_is_named() -> None:
    wrong = result(TWO, 100, checksum=1)
    (first, *_) = consolidation.section([wrong]).checks
    assert not first.holds
    assert "two alike, guest 1" in first.found


def test_tables_have_the_published_figures_beside_ours(tmp_path: Path) -> None:
    section = consolidation.section(results())
    assert "Each scenario is run once." in section.paragraphs
    report.write(tmp_path, [section], [], {}, HARDWARE)
    second = (tmp_path / "consolidation-table-2.csv").read_text().splitlines()
    assert second[0].startswith(
        "guests,the report's,pages shared (measured),pages shared (published)"
    )
    assert second[3] == (
        "two alike,FreeBSD 12.1,2000,18440,2000,7.8,50,7,885621,"
        "raw/made-up/merging.jsonl#2-4"
    )
    third = (tmp_path / "consolidation-table-3.csv").read_text().splitlines()
    # CPU, of the host and of one CPU, memory without and with; then the report's.
    assert third[1].split(",")[1:] == [
        *("10.0", "10.0", "13.5", "14.1", "5.0", "25.0", "25.0"),
        *("3072", "3072", "0.0", "2932", "2875", "1.9"),
        "raw/made-up/without.jsonl#2-4 raw/made-up/merging.jsonl#2-4",
    ]
    assert "-,-,-" in third[2]
    assert (tmp_path / "consolidation-curves.png").stat().st_size > 0
    assert (tmp_path / "consolidation-states.png").stat().st_size > 0


def test_what_was_kept_is_read_with_its_recordings(tmp_path: Path) -> None:
    recordings.write(tmp_path / "one-without.jsonl", [0, 0])
    recordings.write(tmp_path / "one-merging.jsonl", [0, 5, 9])
    phase = {"guests_cpu_seconds": 1.0, "seconds": 2.0}
    observed = {
        "scenario": ONE,
        "without": {**phase, "recording": "one-without.jsonl"},
        "merging": {**phase, "recording": "one-merging.jsonl"},
        "checksums": [CRC],
    }
    (tmp_path / "observed.jsonl").write_text(f"{json.dumps(observed)}\n")
    (read,) = experiment.read(tmp_path, {experiment.USER_SPACE: str(CRC)})
    assert consolidation.pages(read.merging, "pages_shared") == 9
    assert read.merging.raw == f"raw/{tmp_path.name}/one-merging.jsonl#2-4"
    assert read.expected == CRC
