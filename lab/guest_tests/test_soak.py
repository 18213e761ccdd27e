# SPDX-License-Identifier: GPL-2.0-only
"""The daemon at work while tenants write, fork, exit and start."""

import json
import subprocess
import threading
import time

import pytest

from nuksmlab import program
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
    daemon = program.start_daemon("priority", ["--interval", "1"])
    reports: list[program.Pass] = []
    reader = threading.Thread(target=read, args=(daemon, reports))
    reader.start()

    def has_worked() -> bool:
        return len(reports) > 1 and any(report["moved"] for report in reports)

    end = time.monotonic() + SOAK_SECONDS
    round_ = 0
    while time.monotonic() < end or not has_worked():
        steady[0].renice(NICE[round_ % len(NICE)])
        come_and_go(start, round_, nodes[round_ % len(nodes)])
        for tenant in (*steady, *residents):
            assert tenant.bad_pages() == 0
        assert residents[round_ % len(residents)].command("fork")["bad"] == 0
        assert daemon.poll() is None, errors(daemon)
        round_ += 1
    for resident in residents:
        assert resident.command("churn stop")["pages"] > 0
    daemon.terminate()  # as a service manager does
    assert daemon.wait() == 0, errors(daemon)
    reader.join()
    for tenant in (*steady, *residents):
        assert tenant.bad_pages() == 0
        tenant.quit()
