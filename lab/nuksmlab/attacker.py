# SPDX-License-Identifier: GPL-2.0-only
"""A victim with secrets, and a process that guesses them and sees how it fares."""

import ctypes
import mmap
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from nuksmlab.domains import Group
from nuksmlab.ksm import process_stat

NOBODY = 65534
PR_SET_DUMPABLE = 4
EXCLUSIVE = 1 << 56  # in pagemap: nobody else maps the page
PAGE = mmap.PAGESIZE

Found = dict[str, Any]


def contents(choose: random.Random, pages: int) -> list[bytes]:
    return [choose.randbytes(PAGE) for _ in range(pages)]


def mergeable(pages: Sequence[bytes]) -> mmap.mmap:
    area = mmap.mmap(-1, len(pages) * PAGE, flags=mmap.MAP_PRIVATE)
    with suppress(OSError):  # where there are no huge pages
        area.madvise(mmap.MADV_NOHUGEPAGE)
    area.madvise(mmap.MADV_MERGEABLE)
    for number, content in enumerate(pages):
        area[number * PAGE : (number + 1) * PAGE] = content
    return area


def become_nobody() -> None:
    """As if it had been started so: with its own files in /proc for itself to read."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_DUMPABLE, 1):
        raise OSError(ctypes.get_errno(), "prctl")


class Line:
    """One end of two pipes: User-Mode Linux's kernel has no sockets."""

    def __init__(self, reader: Connection, writer: Connection) -> None:
        self.recv, self.send = reader.recv, writer.send


@contextmanager
def _process(cgroup: Group, work: Callable[[Line], None]) -> Iterator[Line]:
    """In a cgroup before it does anything; has until the end of the `with` block."""
    context = multiprocessing.get_context("fork")
    down, up = context.Pipe(duplex=False), context.Pipe(duplex=False)
    here, there = Line(up[0], down[1]), Line(down[0], up[1])

    def run() -> None:
        there.recv()
        work(there)

    process = context.Process(target=run, daemon=True)
    process.start()
    assert process.pid
    cgroup.take(process.pid)
    here.send(None)
    try:
        here.recv()  # it is ready
        yield here
    finally:
        process.kill()
        process.join()


@contextmanager
def victim(cgroup: Group, secrets: Sequence[bytes]) -> Iterator[None]:
    def work(line: Line) -> None:
        area = mergeable(secrets)
        line.send("ready")
        line.recv()
        area.close()

    with _process(cgroup, work):
        yield


@contextmanager
def attacking(
    cgroup: Group,
    right: Sequence[bytes],
    wrong: Sequence[bytes],
    choose: random.Random,
) -> Iterator[Callable[[], Found]]:
    """Guesses, in a mixed order; then, when it is told to, looks and writes.

    It changes no content. What it finds: nanoseconds by kind of guess, and `told`, what
    the kernel says to it.
    """
    guesses = [(True, page) for page in right] + [(False, page) for page in wrong]
    choose.shuffle(guesses)
    is_right = [kind for kind, _ in guesses]

    def work(line: Line) -> None:
        become_nobody()
        area = mergeable([page for _, page in guesses])
        order = list(range(len(guesses)))
        choose.shuffle(order)
        line.send("ready")
        line.recv()
        told = _told(area, is_right)
        took = _time_writes(area, order)
        line.send(
            {
                "right_ns": [took[n] for n, kind in enumerate(is_right) if kind],
                "wrong_ns": [took[n] for n, kind in enumerate(is_right) if not kind],
                "told": told,
            }
        )

    with _process(cgroup, work) as line:

        def attack() -> Found:
            line.send(None)
            found: Found = line.recv()
            return found

        yield attack


def _time_writes(area: mmap.mmap, order: Sequence[int]) -> dict[int, int]:
    took = {}
    clock = time.perf_counter_ns
    for number in order:
        at = number * PAGE
        same = area[at]
        began = clock()
        area[at] = same
        took[number] = clock() - began
    return took


def _told(area: mmap.mmap, is_right: Sequence[bool]) -> dict[str, int]:
    """Of its pages, those that nobody else maps; and KSM's counters of it."""
    first = ctypes.addressof(ctypes.c_char.from_buffer(area)) // PAGE
    with Path("/proc/self/pagemap").open("rb") as pagemap:
        pagemap.seek(first * 8)
        entries = memoryview(pagemap.read(len(is_right) * 8)).cast("Q")
    exclusive = {True: 0, False: 0}
    for entry, kind in zip(entries, is_right, strict=True):
        exclusive[kind] += bool(entry & EXCLUSIVE)
    return {
        **process_stat(os.getpid()),
        "exclusive, right": exclusive[True],
        "exclusive, wrong": exclusive[False],
    }
