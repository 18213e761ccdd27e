# SPDX-License-Identifier: GPL-2.0-only
"""That tests and benchmarks get the scans that they ask for, and no others."""

import mmap
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from nuksmlab.bench.scanner import Scanner
from nuksmlab.ksm import Ksm
from nuksmlab.processes import pid_of


@pytest.fixture
def ksmd_is_late() -> Iterator[None]:
    """It runs only when nobody else wants to, and somebody always does."""
    ksmd, nothing = pid_of("ksmd"), os.sched_param(0)
    policy = os.sched_getscheduler(ksmd)
    os.sched_setscheduler(ksmd, os.SCHED_IDLE, nothing)
    ended, end = os.pipe()
    os.set_blocking(ended, False)
    cpus = os.cpu_count() or 1
    for _ in range(cpus):
        if os.fork() == 0:
            os.close(end)
            while True:
                with suppress(BlockingIOError):
                    os.read(ended, 1)
                    os._exit(0)
    yield
    os.close(end)
    for _ in range(cpus):
        os.wait()
    os.close(ended)
    os.sched_setscheduler(ksmd, policy, nothing)


@pytest.mark.usefixtures("ksmd_is_late")
def test_each_scan_is_made_and_made_once(ksm: Ksm) -> None:
    area = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.madvise(mmap.MADV_MERGEABLE)
    area.write(os.urandom(len(area)))
    for _ in range(3):
        ksm.set_speed({"sleep_millisecs": 0})
        scanner = Scanner(ksm)
        for _ in range(5):
            before = ksm.read("full_scans")
            scanner.scan()
            assert ksm.read("full_scans") == before + 1
    area.close()
