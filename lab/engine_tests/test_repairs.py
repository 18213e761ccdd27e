# SPDX-License-Identifier: GPL-2.0-only
"""What is mended in stock's KSM (kernel/fixes), where no other file has it."""

import mmap
import os

import pytest

from nuksmlab.area import address_of, forget_soft_dirty
from nuksmlab.fuzz import model
from nuksmlab.ksm import Ksm

PAGE = mmap.PAGESIZE
PAGES = 64
MAP_NORESERVE = 0x4000
TIB = 1 << 40


def area_of(contents: bytes) -> mmap.mmap:
    area = mmap.mmap(-1, len(contents), flags=mmap.MAP_PRIVATE)
    area.madvise(mmap.MADV_MERGEABLE)
    area.write(contents)
    return area


def soft_dirty(area: mmap.mmap, pages: int = PAGES) -> list[bool]:
    return model.marks(os.getpid(), address_of(area), pages, model.SOFT_DIRTY)


def are_marked() -> bool:
    """Pages that were just written, on this kernel."""
    probe = mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE)
    probe[0] = 1
    return soft_dirty(probe, 1) == [True]


def test_what_was_written_is_marked_as_that_after_it_was_merged(ksm: Ksm) -> None:
    """Who saves a process step by step saves pages with the mark only, as CRIU does."""
    # Before there is mergeable memory, which a skipped test would keep.
    if not are_marked():
        pytest.skip("this kernel has no marks of what was written")
    wanted = b"".join(bytes([n, 7]) * (PAGE // 2) for n in range(PAGES))
    merged = [area_of(wanted) for _ in "12"]
    late = area_of(bytes([1]) * len(wanted))
    ksm.merge(2 * PAGES)
    forget_soft_dirty()
    assert not any(soft_dirty(late))
    late[:] = wanted
    ksm.merge(3 * PAGES)
    assert all(soft_dirty(late))
    assert not any(soft_dirty(merged[0]))
    assert all(area[:] == wanted for area in (*merged, late))


def test_an_area_without_pages_is_un_merged_at_once() -> None:
    """Else its owner holds up ksmd for minutes, and with it everybody's merging."""
    flags = mmap.MAP_PRIVATE | MAP_NORESERVE
    try:
        area = mmap.mmap(-1, 16 * TIB, flags=flags | mmap.MAP_ANONYMOUS)
    except OSError:
        pytest.skip("User-Mode Linux has no room for it")
    area.madvise(mmap.MADV_MERGEABLE)
    area[0] = area[-1] = 1
    area.madvise(mmap.MADV_UNMERGEABLE)
    assert area[0] == area[-1] == 1
