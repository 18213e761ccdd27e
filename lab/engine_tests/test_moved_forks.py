# SPDX-License-Identifier: GPL-2.0-only
"""Merged pages that a process has by a fork, and moves elsewhere in its memory."""

import ctypes
import mmap
import os
from collections.abc import Iterator

import pytest

from nuksmlab import numa, stress
from nuksmlab.area import address_of
from nuksmlab.ksm import Ksm

PAGES = 256
SIZE = PAGES * mmap.PAGESIZE
SCANS = 4
ROUNDS, HOPS = 50, 50
MAYMOVE_FIXED = 3

pytestmark = [
    # Where there are domains, no page is merged that somebody has where ksmd is not.
    pytest.mark.undivided,
    pytest.mark.skipif(
        len(numa.online()) < 2, reason="pages are moved from one node to another"
    ),
]


def filled(mergeable: bool) -> mmap.mmap:
    area = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE)
    area.madvise(mmap.MADV_NOHUGEPAGE)
    if mergeable:
        area.madvise(mmap.MADV_MERGEABLE)
    area.write(b"".join(bytes([n, 1]) * (mmap.PAGESIZE // 2) for n in range(PAGES)))
    return area


def hop(area: mmap.mmap, told: int) -> None:
    """Moves what it has by the fork to and fro, for ever, and reads it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mremap.restype = ctypes.c_void_p
    here, wanted = address_of(area), area[:]
    spare = address_of(mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE))
    length = ctypes.c_size_t(SIZE)
    while True:
        for start, to in HOPS * [(here, spare), (spare, here)]:
            moved = libc.mremap(
                *(ctypes.c_void_p(start), length, length, MAYMOVE_FIXED),
                ctypes.c_void_p(to),
            )
            assert moved == to
        assert area[:] == wanted
        os.write(told, b".")


@pytest.fixture
def hopper(ksm: Ksm) -> Iterator[int]:
    """Where it tells of its hops, with pages that are merged for its parent."""
    filed = filled(mergeable=True)
    for _ in range(SCANS):
        ksm.scan_once()
    area = filled(mergeable=False)
    hops, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            hop(area, told)
        finally:
            os._exit(1)
    os.close(told)
    # The newcomer's page is the one that stays; the child's area is not mergeable.
    area.madvise(mmap.MADV_MERGEABLE)
    for _ in range(SCANS):
        ksm.scan_once()
    yield hops
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    assert filed[:] == area[:]


@pytest.mark.slow
def test_what_is_moved_while_its_page_is_moved_is_found(ksm: Ksm, hopper: int) -> None:
    one, two = numa.online()[:2]
    for turn in range(ROUNDS):
        ends = (one, two) if turn % 2 else (two, one)
        stress.migrate(os.getpid(), *ends)
        assert os.read(hopper, 4096), "it found wrong contents, or the kernel failed"
    assert ksm.read("pages_sharing") >= PAGES
