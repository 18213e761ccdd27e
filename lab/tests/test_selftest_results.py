# SPDX-License-Identifier: GPL-2.0-only
"""Reading what the kernel's tests say, and comparing two kernels by it."""

from pathlib import Path

import pytest

from nuksmlab import selftests
from nuksmlab.kernels import KernelError
from nuksmlab.selftests import Outcome

TAP = """\
TAP version 13
1..3
# [RUN] test_unmerge
ok 1 Pages were unmerged
# hardly ok 2 or so
not ok 2 KSM NUMA merging
ok 3 KSM zero page merging # SKIP no zero pages
# Totals: pass:1 fail:1 xfail:0 xpass:0 skip:1 error:0
"""

PASSES = Outcome(0, ("ok 1 KSM merging",))
FAILS = Outcome(1, ("not ok 1 KSM merging",))
ACROSS, APART = "merge_across_nodes=1", "merge_across_nodes=0"
STOCK = {ACROSS: {"-M": PASSES}, APART: {"-M": FAILS}}


def test_verdicts_are_counted() -> None:
    outcome = selftests.parse(1, TAP)
    assert outcome.status == 1
    assert outcome.verdicts[1] == "not ok 2 KSM NUMA merging"
    assert outcome.counts() == {"pass": 1, "fail": 1, "skip": 1}
    assert not outcome.passed()


@pytest.mark.parametrize(
    ("status", "tap", "passed"),
    [
        (0, "ok 1 KSM merging\n", True),
        (0, "", False),
        (1, "ok 1 KSM merging\n", False),
        (4, "1..0 # SKIP needs root\n", False),
        (0, "ok 1 KSM merging # SKIP no nodes\n", False),
    ],
)
def test_only_verdicts_pass(status: int, tap: str, passed: bool) -> None:
    assert selftests.parse(status, tap).passed() == passed


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    selftests.write(tmp_path / selftests.RESULTS, STOCK)
    assert selftests.read(tmp_path / selftests.RESULTS) == STOCK


@pytest.mark.parametrize(
    ("setting", "tests", "different"),
    [
        (f"{ACROSS} placement=fair", {"-M": PASSES}, False),
        (f"{ACROSS} placement=fair", {"-M": FAILS}, True),
        (f"{APART} placement=fair", {"-M": FAILS}, False),
        (ACROSS, {}, True),
        (ACROSS, {"-M": PASSES, "-U": PASSES}, True),
    ],
)
def test_each_setting_is_held_against_stock_s(
    setting: str, tests: dict[str, Outcome], different: bool
) -> None:
    found = selftests.differences(STOCK, {**STOCK, setting: tests})
    assert bool(found) == different
    assert all(line.startswith(f"{setting}: -") for line in found)


def test_a_setting_that_was_not_tried_is_a_difference() -> None:
    found = selftests.differences(STOCK, {f"{ACROSS} index=content": STOCK[ACROSS]})
    assert found == [f"{APART}: was not tried on ours"]


def test_comparing_fails_on_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, outcomes in (
        ("stock", STOCK),
        ("same", {f"{name} index=content": each for name, each in STOCK.items()}),
        ("other", {f"{name} index=content": {"-M": FAILS} for name in STOCK}),
    ):
        (tmp_path / name).mkdir()
        selftests.write(tmp_path / name / selftests.RESULTS, outcomes)
    assert selftests.compare(tmp_path / "stock", tmp_path / "same") == 0
    assert "\n0 differences\n" in capsys.readouterr().out
    assert selftests.compare(tmp_path / "stock", tmp_path / "other") == 1
    assert f"{ACROSS} index=content: -M: stock" in capsys.readouterr().out


def test_a_test_that_changed_is_not_fixed_blindly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftests, "DIRECTORY", tmp_path)
    mm = tmp_path / selftests.TREE / "mm"
    mm.mkdir(parents=True)
    (mm / "ksm_tests.c").write_text("while (cur_scan < init_scan + scan_count) {\n")
    copy = selftests.fixed(tmp_path, "ksm_tests")
    assert copy.read_text() == "while (cur_scan <= init_scan + scan_count) {\n"
    (mm / "ksm_tests.c").write_text("while (!done) {\n")
    with pytest.raises(KernelError, match=r"ksm_tests\.c has changed"):
        selftests.fixed(tmp_path, "ksm_tests")
