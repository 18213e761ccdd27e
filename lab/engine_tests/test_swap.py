# SPDX-License-Identifier: GPL-2.0-only
"""Merged pages that were paged out."""

import ctypes
import mmap
import os
import struct
from pathlib import Path

import pytest

from nuksmlab import wait
from nuksmlab.area import address_of
from nuksmlab.ksm import Ksm

PAGE = mmap.PAGESIZE
PAGES = 8
PAGEOUT, MERGEABLE, UNMERGEABLE = 21, 12, 13  # advice to madvise(2)
PRESENT = 1 << 63
FRAME = (1 << 55) - 1


def frames(area: mmap.mmap) -> list[int]:
    """Of each page, the page frame number of what is mapped there, or 0."""
    address = address_of(area)
    with Path("/proc/self/pagemap").open("rb") as pagemap:
        pagemap.seek(address // PAGE * 8)
        entries = struct.unpack(f"{PAGES}Q", pagemap.read(PAGES * 8))
    return [entry & FRAME if entry & PRESENT else 0 for entry in entries]


@pytest.mark.usefixtures("swap")
def test_no_merged_page_comes_back_where_none_may_be(ksm: Ksm) -> None:
    """mremap() would else lose sight of it; anybody could bring the kernel down."""
    contents = b"".join(os.urandom(PAGE) for _ in range(PAGES))
    kept, other = (mmap.mmap(-1, PAGES * PAGE, flags=mmap.MAP_PRIVATE) for _ in "12")
    for area in (kept, other):
        area.madvise(MERGEABLE)
        area.write(contents)
    ksm.merge(2 * PAGES)
    merged = frames(kept)
    assert merged == frames(other)
    other.close()
    held, into = os.pipe()
    try:
        address = address_of(kept)
        vector = (ctypes.c_void_p * 2)(address, PAGES * PAGE)
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.vmsplice(into, ctypes.byref(vector), 1, 0) == PAGES * PAGE

        def is_paged_out() -> bool:
            """Pages that wait to be put on a list are left out at first."""
            kept.madvise(PAGEOUT)
            return not any(frames(kept))

        wait.until(is_paged_out, lambda: f"paging out; mapped are {frames(kept)}")
        kept.madvise(UNMERGEABLE)
        assert kept[:] == contents
        # The pipe holds the merged ones: no other page has their numbers.
        assert not set(merged) & set(frames(kept))
    finally:
        os.close(held)
        os.close(into)
