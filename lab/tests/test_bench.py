# SPDX-License-Identifier: GPL-2.0-only
"""What is made of the benchmark's samples, and what its host has to have."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from nuksmlab import guard, wait
from nuksmlab.bench import figures, host, meter, picture, plan, records, table
from nuksmlab.bench.figures import BASELINE, UNPATCHED, Figures, Series
from nuksmlab.bench.records import Result, Sample

EXPECTED = Path(__file__).parent / "expected"
FOREST = Series("checksum", 256)
HOST: host.Host = {
    "processor": "a CPU",
    "kernel": "6.1",
    "load_before": 0.25,
    "shared_cache_kib": 8192,
}


def result(
    series: Series, seconds: float, workload: str = "worst", mib: int = 256
) -> Result:
    stock = series == UNPATCHED
    return {
        "workload": workload,
        "mib": mib,
        "index": series.index,
        "kib_per_tree": series.kib_per_tree,
        "trees": 1,
        "repetition": 0,
        "cpu_seconds": seconds,
        "wall_seconds": seconds,
        "merged_mib": 0.0 if workload == "random" else float(mib),
        "compares_per_page": None if stock else 15.25,
        "compared_bytes_per_page": None if stock else 62000.4,
    }


def everything() -> list[Result]:
    """Content order is 4 times as slow at 256 MiB and 8 times at 1024."""
    return [
        result(series, speed * slowness * mib / 256 + repetition / 10, workload, mib)
        for repetition in range(3)
        for mib, slowness in ((256, 4), (1024, 8))
        for workload, speed in (("worst", 1.0), ("best", 0.5), ("random", 0.25))
        for series in (BASELINE, UNPATCHED)
    ] + [
        result(FOREST, speed * mib / 256 + repetition / 10, workload, mib)
        for repetition in range(3)
        for mib in (256, 1024)
        for workload, speed in (("worst", 1.0), ("best", 0.5), ("random", 0.25))
    ]


def test_result_is_what_the_second_scan_added() -> None:
    counters = {
        "pages_sharing": 0,
        "content_compares": 100,
        "compared_bytes": None,
    }
    merged = {"pages_sharing": 256, "content_compares": 612, "compared_bytes": None}
    sample: Sample = {
        "run": {
            "workload": "worst",
            "mib": 1,
            "index": "checksum",
            "kib_per_tree": None,
            "repetition": 2,
        },
        "kib_per_tree": 256,
        "trees": 20,
        "scans": [
            {"began": 10.0, "ended": 19.0, "before": counters, "after": counters},
            {"began": 20.0, "ended": 21.5, "before": counters, "after": merged},
        ],
    }
    made = records.result(sample, lambda began, ended: (ended - began) / 3)
    assert (made["cpu_seconds"], made["wall_seconds"]) == (0.5, 1.5)
    assert (made["kib_per_tree"], made["trees"], made["repetition"]) == (256, 20, 2)
    assert made["merged_mib"] == 1.0
    assert made["compares_per_page"] == 1.0  # of the 512 pages in both copies
    assert made["compared_bytes_per_page"] is None


def test_indexes_take_turns_and_the_largest_come_first() -> None:
    firsts = []
    for repetition in range(len(plan.INDEXES)):
        runs = plan.runs(plan.FULL, plan.INDEXES, repetition)
        sizes = [run["mib"] for run in runs]
        assert sizes == sorted(sizes, reverse=True)
        turn = runs[: len(plan.INDEXES)]
        assert len({(run["workload"], run["mib"]) for run in turn}) == 1
        firsts.append((runs[0]["index"], runs[0]["kib_per_tree"]))
    assert len(set(firsts)) == len(plan.INDEXES)


def test_figures_are_medians() -> None:
    measured = Figures([result(FOREST, seconds) for seconds in (1.0, 4.0, 2.0)])
    figure = measured["worst", 256, FOREST]
    assert figure.seconds == 2.0
    assert figure.spread == 1.5
    assert figure.mib_per_second == 128
    assert figure.page_microseconds(figure.seconds) == pytest.approx(2e6 / 131072)


def test_goals_are_those_that_were_measured() -> None:
    reached = {goal.what: goal for goal in figures.goals(Figures(everything()))}
    assert not any("512" in what or "2048" in what for what in reached)
    speedup, against_stock = (goal for what, goal in reached.items() if "1024" in what)
    assert speedup.measured == pytest.approx(32.2 / 4.2)  # the third
    assert not speedup.holds
    assert against_stock.what.startswith("worst, 1024 MiB: `unpatched kernel` takes 10")


def test_an_emulation_that_is_slower_than_stock_reaches_no_goal() -> None:
    sizes, times = (512, 1024), {BASELINE: 10.0, UNPATCHED: 9.0, FOREST: 0.95}
    results = [
        result(series, time, workload, mib)
        for series, time in times.items()
        for workload in ("worst", "best", "random")
        for mib in sizes
    ]
    missed = [goal.what for goal in figures.goals(Figures(results)) if not goal.holds]
    assert missed == [
        f"worst, {mib} MiB: `unpatched kernel` takes 10 times as long or more"
        for mib in sizes
    ]


def test_the_worst_repetition_decides() -> None:
    series = [result(BASELINE, 10.0, mib=512) for _ in range(3)]
    for seconds, holds in (((0.9, 0.9, 0.9), True), ((0.5, 1.1, 0.5), False)):
        times = [result(FOREST, time, mib=512) for time in seconds]
        others = [
            result(one, 1.0, workload, 512)
            for workload in ("best", "random")
            for one in (BASELINE, FOREST)
            for _ in seconds
        ]
        goals = figures.goals(Figures([*series, *times, *others]))
        assert [goal.holds for goal in goals] == [holds, True, True]


def test_indexes_that_merge_differently_are_contradictions() -> None:
    results = everything()
    assert figures.contradictions(results) == []
    results[-1]["merged_mib"] = 1.0
    (contradiction,) = figures.contradictions(results)
    assert contradiction.startswith("random, 1024 MiB: merged [0.0, 1.0] MiB")


def test_table_is_the_expected_one() -> None:
    measured = Figures(everything())
    text = table.render(measured, HOST, figures.goals(measured))
    assert text == (EXPECTED / "bench.md").read_text()


def test_picture_is_drawn(tmp_path: Path) -> None:
    picture.draw(Figures(everything()), tmp_path / "cost.png")
    assert (tmp_path / "cost.png").read_bytes().startswith(b"\x89PNG")


def test_clock_is_the_cpu_time_of_the_process() -> None:
    clock = meter.cpu_clock(os.getpid())
    before = time.process_time()
    seen = time.clock_gettime(clock)
    assert before <= seen <= time.process_time()


def test_a_machine_is_found_below_its_guard() -> None:
    shell = Path("/bin/sh").resolve()
    child = guard.start([str(shell), "-c", "sleep 1000; exit"], grace=0)
    try:
        wait.until(lambda: meter.descendant_that_runs(shell) is not None, lambda: "it")
    finally:
        guard.end(child)
    assert meter.descendant_that_runs(shell) is None


def test_meter_tells_work_from_waiting(tmp_path: Path) -> None:
    shell = Path("/bin/sh").resolve()
    script = (
        "read go; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo; read end"
    )
    with (
        meter.Meter(shell, tmp_path) as measured,
        subprocess.Popen(
            [str(shell), "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child,
    ):
        assert child.stdin
        assert child.stdout
        wait.until(lambda: len(measured.moments) > 20, lambda: "samples")
        waited = time.time()
        child.stdin.write("\n")
        child.stdin.flush()
        child.stdout.readline()
        worked = time.time()
        meter.wait_until_sampled(tmp_path)
        assert measured.moments[-1] > worked
        first = measured.moments[0]
        used = time.clock_gettime(meter.cpu_clock(child.pid))
        child.communicate()
    assert measured.seconds(first, waited) < 0.02 < measured.seconds(waited, worked)
    assert measured.seconds(waited, worked) == pytest.approx(used, abs=0.02)
    with pytest.raises(ValueError, match="not sampled"):
        measured.seconds(first - 1, worked)


def test_too_little_room_for_the_guest_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/nowhere")  # of the guard's
    monkeypatch.setenv("TMP", str(tmp_path))
    host.check_room(1)
    with pytest.raises(host.HostError, match=f"1000000000 MiB in {tmp_path}"):
        host.check_room(10**9)


@pytest.fixture
def limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of mappings per process."""
    limit = tmp_path / "max_map_count"
    monkeypatch.setattr(host, "MAX_MAP_COUNT", limit)
    return limit


def refuse(_: int) -> None:
    raise host.HostError("by root only")


@pytest.mark.parametrize(
    ("before", "during"),
    [("65530", "1000065530"), ("5000000",) * 2, ("1000000000",) * 2],
)
def test_limit_of_mappings_is_raised_for_a_time(
    limit: Path, before: str, during: str
) -> None:
    limit.write_text(before)
    with host.many_mappings():
        assert limit.read_text() == during
    assert limit.read_text() == before


def test_limit_of_mappings_stays_raised_until_nobody_needs_it(limit: Path) -> None:
    limit.write_text("65530")
    with ExitStack() as second:
        with host.many_mappings():
            second.enter_context(host.many_mappings())
        assert limit.read_text() == "1000065530"
    assert limit.read_text() == "65530"


def test_limit_of_mappings_is_put_back_after_who_was_killed(limit: Path) -> None:
    limit.write_text("1000065530")
    with host.many_mappings():
        assert limit.read_text() == "1000065530"
    assert limit.read_text() == "65530"


def test_limit_of_mappings_is_raised_again_if_somebody_lowers_it(limit: Path) -> None:
    limit.write_text("65530")
    with host.many_mappings():
        limit.write_text("70000")
        with host.many_mappings():
            assert limit.read_text() == "1000070000"
    assert limit.read_text() == "70000"


def test_limit_of_mappings_stays_as_root_set_it_when_told_to(
    limit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit.write_text("65530")
    with monkeypatch.context() as no_root:
        no_root.setattr(host, "set_max_map_count", refuse)
        with pytest.raises(host.HostError), host.many_mappings():
            pass
    limit.write_text("4000000")
    with host.many_mappings():
        pass
    assert limit.read_text() == "4000000"


def test_limit_of_mappings_that_cannot_be_put_back_is_put_back_by_the_next(
    limit: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limit.write_text("65530")
    with monkeypatch.context() as no_root, host.many_mappings():
        no_root.setattr(host, "set_max_map_count", refuse)
    assert capsys.readouterr().err == "by root only\n"
    assert limit.read_text() == "1000065530"
    with host.many_mappings():
        pass
    assert limit.read_text() == "65530"


def test_limit_of_mappings_is_put_back_by_who_is_ended_while_it_is_raised(
    limit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(count: int) -> None:
        limit.write_text(str(count))
        if count > host.MAPPINGS:
            raise SystemExit

    limit.write_text("65530")
    monkeypatch.setattr(host, "set_max_map_count", ended)
    with pytest.raises(SystemExit), host.many_mappings():
        pass
    assert limit.read_text() == "65530"


PUTS_BACK = """
import os, signal, sys
from pathlib import Path
from nuksmlab import guard
from nuksmlab.bench import host
host.MAX_MAP_COUNT = Path(sys.argv[1])
sets = host.set_max_map_count
def meanwhile(count):
    os.kill(os.getpid(), signal.SIGTERM)
    sets(count)
guard.unwind_when_terminated()
with host.many_mappings():
    host.set_max_map_count = meanwhile
"""


def test_limit_of_mappings_is_put_back_though_a_signal_comes_meanwhile(
    limit: Path,
) -> None:
    limit.write_text("65530")
    command = [sys.executable, "-c", PUTS_BACK, str(limit)]
    done = subprocess.run(command, check=False)
    assert done.returncode == 128 + signal.SIGTERM
    assert limit.read_text() == "65530"


def test_limit_of_mappings_is_put_back_by_a_user_with_another_cache(
    limit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit.write_text("65530")
    monkeypatch.setenv("NUKSM_CACHE", str(tmp_path / "one"))
    with ExitStack() as second:
        with host.many_mappings():
            monkeypatch.setenv("NUKSM_CACHE", str(tmp_path / "another"))
            second.enter_context(host.many_mappings())
            monkeypatch.setenv("NUKSM_CACHE", str(tmp_path / "one"))
        assert int(limit.read_text()) >= host.MAPPINGS
        monkeypatch.setenv("NUKSM_CACHE", str(tmp_path / "another"))
    assert limit.read_text() == "65530"


def test_limit_of_mappings_that_root_sets_meanwhile_stays(limit: Path) -> None:
    limit.write_text("65530")
    with host.many_mappings():
        limit.write_text("8000000")
    assert limit.read_text() == "8000000"


def test_without_sudo_it_is_said_what_root_has_to_do(
    limit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit.write_text("65530")
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setenv("PATH", "/nowhere")
    said = f"sysctl -w vm.max_map_count={host.MAPPINGS}$"
    with pytest.raises(host.HostError, match=said), host.many_mappings():
        pass
