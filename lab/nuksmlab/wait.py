# SPDX-License-Identifier: GPL-2.0-only
"""Waiting for state that nobody announces, such as a counter of the kernel."""

import time
from collections.abc import Callable

# For what hangs. What does not is done in a fraction of it, on a machine that three
# others keep busy, too; how long things take is measured elsewhere.
HANG_SECONDS = 900.0


class DeadlineError(Exception):
    """What was waited for did not come in time."""


def until(
    done: Callable[[], bool],
    what: Callable[[], str],
    seconds: float = HANG_SECONDS,
    poll: float = 0.1,
) -> None:
    """Polls until `done()`; past the deadline, raises what `what()` says.

    It has been asked once more then: this process may have been kept waiting itself.
    """
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            if done():
                return
            raise DeadlineError(f"not within {seconds:.0f} s: {what()}")
        time.sleep(poll)
