# SPDX-License-Identifier: GPL-2.0-only
"""The daemon at work while tenants write, fork, exit and start."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nuksmlab import program, wait
from nuksmlab.ksm import STOCK, Ksm
from nuksmlab.tenant import StartTenant

SOAK_SECONDS = 30.0
NICE = (-20, -11, 0)
MIX = {"equal": 70, "private": 10, "zero": 5, "changing": 15}


def read(daemon: subprocess.Popen[str], reports: list[program.Pass]) -> None:
    assert daemon.stdout
    for line in daemon.stdout:
        reports.append(json.loads(line))


def errors(daemon: subprocess.Popen[str]) -> str:
    assert daemon.stderr
    return daemon.stderr.read()


def has_worked(reports: list[program.Pass]) -> bool:
    return len(reports) > 1 and any(report["moved"] for report in reports)


@contextmanager
def placing() -> Iterator[tuple[subprocess.Popen[str], list[program.Pass]]]:
    """A daemon, and what it has reported; it ends as a service manager ends it."""
    daemon = program.start_daemon("priority", ["--interval", "1"])
    reports: list[program.Pass] = []
    reader = threading.Thread(target=read, args=(daemon, reports))
    reader.start()
    try:
        yield daemon, reports
    finally:
        daemon.terminate()
        daemon.wait()
        reader.join()


def come_and_go(start: StartTenant, round_: int, node: int) -> None:
    """A tenant that lives through a few passes at most."""
    guest = start(f"guest-{round_}", node, mib=4, **MIX)
    guest.command("churn start")
    assert guest.command("fork")["bad"] == 0
    assert guest.bad_pages() == 0
    guest.quit()


@pytest.mark.slow
def test_tenants_are_unharmed(start: StartTenant, ksm: Ksm, nodes: list[int]) -> None:
    # Their pages stay merged, and each round asks for another placement of them.
    steady = [start(f"steady-{node}", node, equal=100, seed=9) for node in nodes]
    ksm.merge(sum(tenant.equal_pages for tenant in steady))
    residents = [start(f"vm-{node}", node, **MIX) for node in nodes]
    ksm.write("smart_scan", 0)
    ksm.set_speed(STOCK | {"pages_to_scan": 2000})
    ksm.start()
    for resident in residents:
        resident.command("churn start")
    with placing() as (daemon, reports):
        began = time.monotonic()
        round_ = 0
        while time.monotonic() < began + SOAK_SECONDS or not has_worked(reports):
            steady[0].renice(NICE[round_ % len(NICE)])
            come_and_go(start, round_, nodes[round_ % len(nodes)])
            for tenant in (*steady, *residents):
                assert tenant.bad_pages() == 0
            assert residents[round_ % len(residents)].command("fork")["bad"] == 0
            assert daemon.poll() is None, errors(daemon)
            assert time.monotonic() < began + wait.HANG_SECONDS, "nothing was moved"
            round_ += 1
        for resident in residents:
            assert resident.command("churn stop")["pages"] > 0
    assert daemon.returncode == 0, errors(daemon)
    for tenant in (*steady, *residents):
        assert tenant.bad_pages() == 0
        tenant.quit()
