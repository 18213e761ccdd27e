# SPDX-License-Identifier: GPL-2.0-only
"""`nuksm tune`: what it changes, on whose figures, and what it leaves behind."""

import json
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from nuksmlab import paths, program, wait
from nuksmlab.ksm import STOCK, Ksm
from nuksmlab.tenant import StartTenant

pytestmark = pytest.mark.anywhere

SETTINGS = (
    "pages_to_scan",
    "sleep_millisecs",
    "advisor_mode",
    "advisor_max_cpu",
    "advisor_target_scan_time",
)
# In these, no machine is short of memory, or every one is.
AMPLE = ("--low-free", "0", "--ample-free", "0.001")
SHORT = ("--low-free", "99.9", "--ample-free", "100")


@pytest.fixture
def tuned(ksm: Ksm) -> Iterator[Ksm]:
    """A speed that no rule would choose, which has to come back."""
    ksm.set_speed({"pages_to_scan": 123, "sleep_millisecs": 21})
    yield ksm
    ksm.write_text("advisor_mode", "none")
    ksm.set_speed(STOCK)


def tune(*options: str) -> subprocess.Popen[str]:
    command = [str(paths.NUKSM), "tune", "--json", "--interval", "1", *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def first_change(daemon: subprocess.Popen[str]) -> dict[str, Any]:
    assert daemon.stdout is not None
    result: dict[str, Any] = json.loads(daemon.stdout.readline())
    return result


def settings(ksm: Ksm) -> dict[str, str]:
    return {name: ksm.read_text(name) for name in SETTINGS}


def test_speed_follows_memory_and_comes_back(tuned: Ksm) -> None:
    before = settings(tuned)
    tuned.start()
    for options, bound in ((AMPLE, min), (SHORT, max)):
        with tune(*options) as daemon:
            change = first_change(daemon)
            assert change["to"]["pages_to_scan"] == tuned.read("pages_to_scan")
            assert tuned.read("pages_to_scan") == bound(
                123, tuned.read("pages_to_scan")
            )
            assert change["to"] != change["from"]
            daemon.send_signal(signal.SIGTERM)
            _, errors = daemon.communicate()
        assert daemon.returncode == 0, errors
        assert settings(tuned) == before


def test_merging_that_pays_is_given_more_time(tuned: Ksm, start: StartTenant) -> None:
    tenants = [start("vm-0", 0, mib=32, same=100, equal=0)]
    tuned.start()
    with tune(*AMPLE, "--max-cpu", "50") as daemon:
        assert daemon.stdout is not None
        changes = (json.loads(line) for line in daemon.stdout)
        change = next(change for change in changes if change["demand_by_profit"] > 0)
        assert change["saved_pages"] > 0
        assert change["to"]["pages_to_scan"] > 64
        daemon.terminate()
        daemon.communicate()
    assert tenants[0].bad_pages() == 0


def test_a_killed_daemon_leaves_the_way_back(tuned: Ksm) -> None:
    before = settings(tuned)
    tuned.start()
    with tune(*SHORT) as daemon:
        first_change(daemon)
        daemon.kill()
    assert settings(tuned) != before
    with tune(*AMPLE) as daemon:
        first_change(daemon)
        second = program.run("tune", "--interval", "1")
        assert second.returncode != 0
        assert "another" in second.stderr
        daemon.terminate()
        daemon.communicate()
    assert settings(tuned) == before


def test_what_somebody_else_sets_does_not_stay(tuned: Ksm) -> None:
    tuned.start()
    with tune(*AMPLE) as daemon:
        first_change(daemon)
        slow = tuned.read("pages_to_scan")
        tuned.write("pages_to_scan", 777)
        change = first_change(daemon)
        assert change["from"]["pages_to_scan"] == 777
        assert tuned.read("pages_to_scan") == slow
        daemon.terminate()
        daemon.communicate()


def test_a_dry_run_changes_nothing(tuned: Ksm) -> None:
    before = settings(tuned)
    with tune("--dry-run", *SHORT) as daemon:
        assert first_change(daemon)["dry_run"]
        assert settings(tuned) == before
        daemon.terminate()
        daemon.communicate()


def test_the_advisor_is_steered_and_given_back(tuned: Ksm) -> None:
    before = settings(tuned)
    with tune("--advisor", *SHORT) as daemon:
        first_change(daemon)
        assert tuned.read_text("advisor_mode") == "none [scan-time]"
        assert tuned.read("advisor_target_scan_time") == 2
        assert tuned.read("advisor_max_cpu") == 20
        daemon.terminate()
        daemon.communicate()
    assert settings(tuned) == before


def test_an_advisor_that_was_on_is_on_again(tuned: Ksm) -> None:
    tuned.write_text("advisor_mode", "scan-time")
    before = {name: tuned.read_text(name) for name in SETTINGS[1:]}
    with tune(*SHORT) as daemon:
        first_change(daemon)
        assert tuned.read_text("advisor_mode") == "[none] scan-time"
        daemon.terminate()
        daemon.communicate()
    assert {name: tuned.read_text(name) for name in SETTINGS[1:]} == before


def test_ksmd_keeps_to_its_cpu(tuned: Ksm, start: StartTenant) -> None:
    """By the figures that the daemon saw; the clock decides nothing here."""
    start("vm-0", 0, mib=64, private=100, equal=0)
    tuned.start()
    seen = tuned.read("full_scans")
    with tune(*SHORT, "--max-cpu", "5") as daemon:
        wait.until(
            lambda: tuned.read("full_scans") > seen,
            lambda: "a full scan at 5 % of a CPU",
        )
        daemon.terminate()
        out, _ = daemon.communicate()
    for line in out.splitlines():
        change = json.loads(line)
        to, cost = change["to"], change["microseconds_per_page"] / 1e6
        work = to["pages_to_scan"] * cost
        assert work / (work + to["sleep_millisecs"] / 1000) <= 0.05 * 1.001
