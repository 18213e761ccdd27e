# SPDX-License-Identifier: GPL-2.0-only
"""Merged pages that a userfaultfd protects from being read: none can be un-merged."""

import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from fcntl import ioctl

import pytest

from nuksmlab.area import address_of
from nuksmlab.fuzz import model
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import StartTenant

PAGE = mmap.PAGESIZE
PAGES = 64
MERGEABLE, UNMERGEABLE = 12, 13  # advice to madvise(2)
# Of userfaultfd(2); reading is what Linux 7.3 can protect pages from.
SYS_USERFAULTFD, USER_MODE_ONLY = 323, 1
UFFD_API, FEATURE_RWP, MODE_RWP = 0xAA, 1 << 17, 1 << 3
UFFDIO_API, UFFDIO_REGISTER, UFFDIO_RWPROTECT = 0xC018AA3F, 0xC020AA00, 0xC018AA09

Protect = Callable[[mmap.mmap, int, bool], None]


@pytest.fixture
def protect() -> Iterator[Protect]:
    """Protects so many pages of an area, from its first on, or lets them be read."""
    libc = ctypes.CDLL(None, use_errno=True)
    uffd = libc.syscall(SYS_USERFAULTFD, os.O_CLOEXEC | os.O_NONBLOCK | USER_MODE_ONLY)
    if uffd < 0:
        pytest.skip("this kernel has no userfaultfd for everybody")
    try:
        ioctl(uffd, UFFDIO_API, struct.pack("3Q", UFFD_API, FEATURE_RWP, 0))
    except OSError:
        os.close(uffd)
        pytest.skip("this kernel's userfaultfd does not protect from reading")

    def change(area: mmap.mmap, pages: int, on: bool) -> None:
        start, size = address_of(area), pages * PAGE
        if on:
            whole = struct.pack("4Q", start, PAGES * PAGE, MODE_RWP, 0)
            ioctl(uffd, UFFDIO_REGISTER, whole)
        ioctl(uffd, UFFDIO_RWPROTECT, struct.pack("3Q", start, size, on))

    yield change
    os.close(uffd)


def two_areas() -> tuple[mmap.mmap, mmap.mmap, bytes]:
    contents = b"".join(os.urandom(PAGE) for _ in range(PAGES))
    one, other = (mmap.mmap(-1, PAGES * PAGE, flags=mmap.MAP_PRIVATE) for _ in "12")
    for area in (one, other):
        area.madvise(MERGEABLE)
        area.write(contents)
    return one, other, contents


def test_who_asks_for_own_pages_is_told_of_merged_ones(
    ksm: Ksm, protect: Protect
) -> None:
    one, other, contents = two_areas()
    ksm.merge(2 * PAGES)
    half = PAGES // 2
    protect(one, half, True)
    with pytest.raises(OSError, match="busy") as refused:
        one.madvise(UNMERGEABLE)
    assert refused.value.errno == errno.EBUSY
    protect(one, half, False)
    one.madvise(UNMERGEABLE)
    ksm.wait_scans(2)
    assert ksm.merged() == PAGES  # the other's
    assert one[:] == other[:] == contents


def test_everything_else_is_un_merged(
    ksm: Ksm, start: StartTenant, protect: Protect
) -> None:
    """Also what is behind in the same area, and of processes that come later."""
    one, other, contents = two_areas()
    tenants = [start(f"vm-{number}", mib=1) for number in range(2)]
    ksm.merge(2 * PAGES + sum(tenant.equal_pages for tenant in tenants))
    for area in (one, other):
        protect(area, 1, True)
    ksm.unmerge()
    assert ksm.merged() == 0
    frames = [
        model.frames(os.getpid(), address_of(area), PAGES) for area in (one, other)
    ]
    assert set(frames[0]) & set(frames[1]) == {frames[0][0]}
    frames = [
        model.frames(tenant.pid, int(tenant.facts["equal_at"], 16), tenant.equal_pages)
        for tenant in tenants
    ]
    assert not set(frames[0]) & set(frames[1])
    for area in (one, other):
        protect(area, 1, False)
    assert one[:] == other[:] == contents
    assert all(tenant.bad_pages() == 0 for tenant in tenants)
