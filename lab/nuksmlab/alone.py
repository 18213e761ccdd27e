# SPDX-License-Identifier: GPL-2.0-only
"""One process at a time writes to a directory: two would judge each other's results."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

# A signal that comes just before a wait is seen after it.
HEARS_SECONDS = 0.5


def is_free(lock: IO[str]) -> bool:
    """It is this process's then."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def alone(output: Path) -> Iterator[int]:
    """Waits for who is there, and says so.

    The lock is beside the directory, which may be removed and made anew. Gives its
    descriptor: whoever inherits that has it, too.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.with_name(f".{output.name}.lock").open("w") as lock:
        if not is_free(lock):
            print(f"waiting for who else writes to {output}", flush=True)
            while not is_free(lock):
                time.sleep(HEARS_SECONDS)
        yield lock.fileno()
