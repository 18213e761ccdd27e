# SPDX-License-Identifier: GPL-2.0-only
"""Sharers that go to a replica and back, and what others did to their memory before."""

import contextlib
import ctypes
import mmap
import os
import struct
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

import pytest

from nuksmlab import numa, stress, wait
from nuksmlab.area import address_of, child, equal_to
from nuksmlab.fuzz import model
from nuksmlab.ksm import Ksm
from nuksmlab.looks import reading
from nuksmlab.replicas import count, wait_for
from nuksmlab.tenant import Tenant

pytestmark = pytest.mark.needs(nodes=2)

PAGE = mmap.PAGESIZE
MIB = 2
PAGES = MIB * 256
# Of userfaultfd(2), and what pagemap says of pages that it protects from writes.
SYS_USERFAULTFD, USER_MODE_ONLY = 323, 1
UFFD_API, FEATURE_WP, MODE_WP = 0xAA, 1 << 0, 1 << 1
UFFDIO_API, UFFDIO_REGISTER, UFFDIO_WRITEPROTECT = 0xC018AA3F, 0xC020AA00, 0xC018AA06
PROTECTED = 1 << 57

BLOCK_SIZE = Path("/sys/devices/system/memory/block_size_bytes")


@pytest.fixture(autouse=True)
def often(ksm: Ksm) -> None:
    """A look each second, whatever it takes here; and room for all replicas."""
    ksm.write("look_cpu_permille", 1000)
    ksm.write("replica_percent", 100)


@pytest.fixture
def area(ksm: Ksm, pair: list[Tenant]) -> Iterator[mmap.mmap]:
    """This process has the tenants' pages, too, merged; it runs on node 0."""
    with numa.running_on(0):
        area = equal_to(pair[0])
        contents = area[:]
        ksm.merge(3 * PAGES)
        yield area
    assert area[:] == contents


@pytest.fixture
def block() -> Iterator[Path]:
    """Of node 1's memory, a part that can go; programs get it before all other."""
    found = None
    for block in Path("/sys/devices/system/node/node1").glob("memory[0-9]*"):
        with contextlib.suppress(OSError):  # some of it cannot be moved
            stress.put(block / "state", "offline")
            found = block
            break
    assert found
    stress.put(found / "state", "online_movable")
    yield found
    if (found / "state").read_text().strip() == "online":
        stress.put(found / "state", "offline")
    stress.put(found / "state", "online_kernel")


def frames(area: mmap.mmap) -> list[int]:
    found = model.frames(os.getpid(), address_of(area), PAGES)
    assert len(found) == PAGES
    return found


def protected(area: mmap.mmap) -> int:
    """How many pages of it a userfaultfd protects."""
    entries = array("Q")
    with Path("/proc/self/pagemap").open("rb", buffering=0) as file:
        file.seek(address_of(area) // PAGE * 8)
        entries.frombytes(file.read(PAGES * 8))
    return sum(entry & PROTECTED != 0 for entry in entries)


@contextmanager
def protection(area: mmap.mmap) -> Iterator[None]:
    """Who writes to it has to wait meanwhile."""
    libc = ctypes.CDLL(None, use_errno=True)
    uffd = libc.syscall(SYS_USERFAULTFD, os.O_CLOEXEC | os.O_NONBLOCK | USER_MODE_ONLY)
    if uffd < 0:
        raise OSError(ctypes.get_errno(), "userfaultfd")
    whole = (address_of(area), PAGES * PAGE)
    ioctl(uffd, UFFDIO_API, struct.pack("3Q", UFFD_API, FEATURE_WP, 0))
    ioctl(uffd, UFFDIO_REGISTER, struct.pack("4Q", *whole, MODE_WP, 0))
    ioctl(uffd, UFFDIO_WRITEPROTECT, struct.pack("3Q", *whole, 1))
    yield
    os.close(uffd)


def test_what_a_userfaultfd_protects_stays_so(
    ksm: Ksm, pair: list[Tenant], area: mmap.mmap
) -> None:
    with protection(area):
        before = frames(area)
        assert protected(area) == PAGES
        with reading(pair[0]), reading(pair[1]):
            wait_for(ksm, PAGES)
            between = frames(area)
            assert 0 < len(set(before) - set(between)) < PAGES
            assert protected(area) == PAGES
            ksm.write("replica_percent", 0)
            wait_for(ksm, 0)
            assert len(set(between) - set(frames(area))) > 0
            assert protected(area) == PAGES
    model.check_intact(pair)


@pytest.mark.slow
def test_who_forked_keeps_his_pages_and_others_may_leave(
    ksm: Ksm, pair: list[Tenant], area: mmap.mmap
) -> None:
    """As long as ksmd has not come by: nobody would find the child's mapping."""
    ksm.scan_once()
    with reading(pair[0]), reading(pair[1]):
        with child(area) as pid:
            wait_for(ksm, PAGES)
            model.check_mappings([os.getpid(), pid, *(vm.pid for vm in pair)])
            model.check_intact(pair)
        wait_for(ksm, PAGES)
    model.check_intact(pair)


def test_copies_that_a_fork_has_are_folded(
    ksm: Ksm, pair: list[Tenant], area: mmap.mmap
) -> None:
    """Though ksmd does not know of it: what it has is found by what its parent has."""
    ksm.scan_once()
    with reading(pair[0]), reading(pair[1]):
        wait_for(ksm, PAGES)
        with child(area) as pid:
            mapped = frames(area)
            ksm.write("replica_percent", 0)
            wait_for(ksm, 0)
            assert ksm.read("pages_shared") == PAGES
            folded = frames(area)
            assert 0 < len(set(mapped) - set(folded)) < PAGES
            assert model.frames(pid, address_of(area), PAGES) == folded
            model.check_mappings([os.getpid(), pid, *(vm.pid for vm in pair)])
            model.check_intact(pair)
    model.check_intact(pair)


def pages_in(block: Path, tenants: list[Tenant]) -> list[int]:
    """How many of each tenant's equal pages are in a block of memory."""
    size = int(BLOCK_SIZE.read_text(), 16) // PAGE
    number = int(block.name.removeprefix("memory"))
    first = [int(tenant.facts["equal_at"], 16) for tenant in tenants]
    return [
        sum(frame // size == number for frame in model.frames(tenant.pid, at, PAGES))
        for tenant, at in zip(tenants, first, strict=True)
    ]


def test_memory_with_replicas_can_go(ksm: Ksm, block: Path, pair: list[Tenant]) -> None:
    with reading(pair[0]), reading(pair[1]):
        wait_for(ksm, PAGES)
        assert pages_in(block, pair) == [0, PAGES]
        stress.put(block / "state", "offline")
        assert pages_in(block, pair) == [0, 0]
        model.check_intact(pair)
        wait.until(
            lambda: [vm.share_on(node) for node, vm in enumerate(pair)] == [1, 1],
            lambda: f"pages near for both; {ksm.replicas()}",
        )
        assert count(ksm) == PAGES
    model.check_intact(pair)
