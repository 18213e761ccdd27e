# SPDX-License-Identifier: GPL-2.0-only
"""Waiting for state that nobody announces, such as a counter of the kernel."""

import time
from collections.abc import Callable

# Long enough for whatever does not hang, on a machine that is at rest.
HANG_SECONDS = 240.0
# What `pace` does takes so long in the lab's emulated machines, at rest.
WORK_SECONDS = 0.004
WORK = 10_000


class DeadlineError(Exception):
    """What was waited for did not come in time."""


def pace() -> float:
    """How fast this machine is right now; 1 where nothing else keeps it busy."""
    began = time.perf_counter()
    sum(range(WORK))
    return min(1.0, WORK_SECONDS / (time.perf_counter() - began))


def until(
    done: Callable[[], bool],
    what: Callable[[], str],
    seconds: float = HANG_SECONDS,
    poll: float = 0.1,
) -> None:
    """Polls until `done()`; past the deadline, raises what `what()` says.

    The deadline is for what hangs: while the machine is slow, its clock is slow, too.
    """
    left = seconds
    while not done():
        if left < 0:
            raise DeadlineError(f"not within {seconds:.0f} s: {what()}")
        began = time.monotonic()
        time.sleep(poll)
        left -= (time.monotonic() - began) * pace()
