# SPDX-License-Identifier: GPL-2.0-only
"""What machines are booted for: several at once, unless time is measured."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import connection

from nuksmlab import debian_guest, kernels, machine
from nuksmlab.bench import host

FAILURES = (
    *(debian_guest.DebianError, kernels.KernelError),
    *(machine.MachineError, host.HostError),
)


@dataclass(frozen=True)
class Job:
    """What one machine is booted for, unless that was done before."""

    name: str
    run: Callable[[], object]
    timed: bool  # by the clock: nothing else is to run meanwhile


def run(job: Job) -> bool:
    """One that fails does not keep the others from being run."""
    try:
        job.run()
    except FAILURES as error:
        print(f"paper: {job.name}: {error}", file=sys.stderr, flush=True)
        return False
    return True


def end_with_parent() -> None:
    """However that ends; Ctrl-C is its affair alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run_all(jobs: Sequence[Job], at_once: int) -> bool:
    """First those that measure time, each alone.

    The others in processes of their own. When this ends, they do, and their machines.
    """
    done = [run(job) for job in jobs if job.timed]
    with ProcessPoolExecutor(at_once, initializer=end_with_parent) as pool:
        try:
            done += pool.map(run, [job for job in jobs if not job.timed])
        except BaseException:
            for process in multiprocessing.active_children():
                process.kill()
            raise
    return all(done)
