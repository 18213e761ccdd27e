# SPDX-License-Identifier: GPL-2.0-only
"""The paper's trials as on a real server: on this machine's nodes, by its clock."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nuksmlab import perf, policy, wait
from nuksmlab.ksm import Ksm
from nuksmlab.machine import Machine, MachineError
from nuksmlab.paper import extent, guest, runner
from nuksmlab.paper.extent import CORRECTED, NUKSM, OFF, STOCK, Part
from nuksmlab.paper.trial import local_pages_percent, places
from nuksmlab.paper.where import BALANCING, Host
from nuksmlab.workload import Instance

SMALL = replace(extent.HOST, kib=4096, operations={"random_access": 1000})
LOCAL = {OFF: [100, 100], STOCK: [100, 0], NUKSM: [50, 50], CORRECTED: [50, 50]}


@pytest.fixture
def unbalanced() -> Iterator[None]:
    """Nobody but KSM moves pages."""
    before = BALANCING.read_text()
    BALANCING.write_text("0")
    yield
    BALANCING.write_text(before)


@pytest.mark.needs(nodes=2)
@pytest.mark.usefixtures("ksm", "unbalanced")
def test_trials_run_on_this_machine_itself(tmp_path: Path) -> None:
    trials = [
        extent.trial(SMALL, "random_access", configuration, places([0, 1]))
        for configuration in LOCAL
    ]
    runner.run(Part("any", Machine(2, 0), SMALL.caches, trials), Host(), tmp_path)
    results = list(runner.read(tmp_path))
    pages = SMALL.kib // 4
    for result, (configuration, local) in zip(results, LOCAL.items(), strict=True):
        instances = result["instances"]
        # Where lots decide, shares are those of random numbers.
        chance = 100 * policy.allowed(1 / 2, pages) if configuration == NUKSM else 1
        assert [local_pages_percent(one) for one in instances] == pytest.approx(
            local, abs=chance
        )
        assert {one["answer"]["checksum"] for one in instances} == {result["expected"]}
        assert all(one["answer"]["seconds"] > 0 for one in instances)


@pytest.mark.needs(nodes=2)
@pytest.mark.usefixtures("unbalanced")
def test_a_machine_is_lent_for_so_long(
    ksm: Ksm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not done by then is not there, nor is anything merged any more."""
    observed = tmp_path / "observed.jsonl"

    class Lent(subprocess.Popen[bytes]):
        """Its time is over when a first trial was noted, however long that takes."""

        def wait(self, timeout: float | None = None) -> int:
            if timeout is None:
                return super().wait()
            wait.until(
                lambda: observed.exists() and observed.read_text() != "",
                lambda: "a first trial",
            )
            return super().wait(0)

    monkeypatch.setattr(subprocess, "Popen", Lent)
    trials = [extent.trial(SMALL, "random_access", NUKSM, places([0, 1]))] * 1000
    part = Part("any", Machine(2, 0), SMALL.caches, trials)
    with pytest.raises(MachineError, match="the same command goes on with it"):
        runner.run(part, Host(), tmp_path)
    assert observed.read_text()
    assert not list(runner.read(tmp_path))
    assert ksm.merged() == 0
    assert ksm.read("run") != 1, "it goes on, in whatever else may be merged there"


def faults(pid: int) -> int:
    """Page faults of a process, by the kernel's own count, see proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[7]) + int(fields[9])


# Real hardware's events are not emulated: the kernel's own take their places.
@pytest.mark.needs(nodes=2)
@pytest.mark.anywhere
def test_perf_counts_what_a_process_does_between_two_moments() -> None:
    pages = 1000
    program = (
        f"import mmap; area = mmap.mmap(-1, {pages} * mmap.PAGESIZE)\n"
        "def touch(first, last):\n"
        "  for page in range(first, last): area[page * mmap.PAGESIZE] = 1\n"
        "  print(flush=True); input()\n"
        f"touch(0, 300); touch(300, {pages})\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        before = faults(process.pid)
        with perf.counting(process.pid, ("page-faults", "alignment-faults")) as end:
            process.stdin.write("\n")
            process.stdin.flush()
            process.stdout.readline()
            counted = end()
            # A few may be its program's own, or, by the kernel's count, the kernel's.
            assert 700 <= counted["local"] <= faults(process.pid) - before < pages
            assert counted["remote"] == 0
        process.communicate("\n")


@pytest.mark.needs(nodes=2)
@pytest.mark.anywhere
def test_each_instances_measured_phase_is_counted() -> None:
    events = ("page-faults", "alignment-faults")
    with (
        Instance("random_access", 0, 0, 4096) as one,
        Instance("random_access", 1, 1, 4096) as two,
    ):
        phases = guest.run_all([one, two], 1000, events)
    assert len({phase["answer"]["checksum"] for phase in phases}) == 1
    assert [phase["loads"]["remote"] for phase in phases] == [0, 0]
