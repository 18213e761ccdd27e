# SPDX-License-Identifier: GPL-2.0-only
"""Processes that read what the kernel says of KSM, again and again."""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from nuksmlab.ksm import Ksm

NOBODY = 65534
ROOT = 0
Files = Callable[[], Sequence[Path]]


def every_file() -> Sequence[Path]:
    """Of KSM and of all processes; a reader may read its own and perhaps others."""
    return [
        *sorted(Ksm().root.iterdir()),
        Path("/proc/self/ksm_stat"),
        *(process / "ksm_stat" for process in Path("/proc").glob("[0-9]*")),
    ]


def _read(files: Files, user: int, rest: float) -> None:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    while True:
        for file in files():
            # Not this user's, or of a process that has just ended.
            with suppress(PermissionError, FileNotFoundError, ProcessLookupError):
                file.read_bytes()
        time.sleep(rest)


@contextmanager
def reading(
    files: Files, user: int, count: int = 1, rest: float = 0.0
) -> Iterator[None]:
    """So many processes of that user read these files for as long as this lasts."""
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=_read, args=(files, user, rest), daemon=True)
        for _ in range(count)
    ]
    for process in processes:
        process.start()
    try:
        yield
        dead = [process.exitcode for process in processes if not process.is_alive()]
        assert not dead, f"readers ended with {dead}"
    finally:
        for process in processes:
            process.kill()
            process.join()
