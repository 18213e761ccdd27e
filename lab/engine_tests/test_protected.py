# SPDX-License-Identifier: GPL-2.0-only
"""Merged pages that a userfaultfd protects from being read: none can be un-merged."""

import errno
import mmap
import os
from collections.abc import Callable, Iterator

import pytest

from nuksmlab.area import address_of
from nuksmlab.fuzz import model
from nuksmlab.ksm import Ksm
from nuksmlab.protector import READS, Protector
from nuksmlab.tenant import StartTenant

PAGE = mmap.PAGESIZE
PAGES = 64
MERGEABLE, UNMERGEABLE = 12, 13  # advice to madvise(2)

Protect = Callable[[mmap.mmap, int, bool], None]


@pytest.fixture
def protect() -> Iterator[Protect]:
    """Protects so many pages of an area, from its first on, or lets them be read."""
    try:
        protector = Protector(READS)
    except OSError as error:
        pytest.skip(f"this kernel's userfaultfd does not protect from reading: {error}")
    yield protector.change
    protector.close()


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
