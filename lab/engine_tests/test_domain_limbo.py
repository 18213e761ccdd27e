# SPDX-License-Identifier: GPL-2.0-only
"""Memory of processes in no cgroup yet, or in none any more, joins no domain."""

import ctypes
import mmap
import os
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from fcntl import ioctl
from pathlib import Path

import pytest

from nuksmlab import domains, numa, wait
from nuksmlab.area import address_of, equal_to
from nuksmlab.domains import Group
from nuksmlab.ksm import Ksm, process_stat
from nuksmlab.tenant import StartTenant, Tenant, lend

MIB = 1
PAGES = MIB * 256
SCANS = 3
MOST_VAIN = 3  # scans after which a page that cannot be moved is given up
CLONE_PIDFD = 0x1000
SYS_PREAD64, SYS_USERFAULTFD, SYS_CLONE3 = 17, 323, 435
UFFD_API, MODE_MISSING = 0xAA, 1
UFFDIO_API, UFFDIO_REGISTER = 0xC018AA3F, 0xC020AA00

pytestmark = pytest.mark.skipif(
    not domains.exist() or not Path("/sys/devices/system/node").exists(),
    reason="this kernel has no merge domains, or no nodes",
)


def syscall(number: int, *arguments: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.syscall(number, *(ctypes.c_ulong(word) for word in arguments))
    return int(done)


def never_there() -> int:
    """The address of a page: whoever touches it waits until he is killed."""
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE)
    uffd = syscall(SYS_USERFAULTFD, os.O_CLOEXEC)
    assert uffd >= 0
    ioctl(uffd, UFFDIO_API, struct.pack("3Q", UFFD_API, 0, 0))
    address = address_of(page)
    ioctl(
        uffd,
        UFFDIO_REGISTER,
        struct.pack("4Q", address, mmap.PAGESIZE, MODE_MISSING, 0),
    )
    pages.append(page)
    return address


pages: list[mmap.mmap] = []  # as long as this process is there


@contextmanager
def forked(work: Callable[[], object]) -> Iterator[int]:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(1)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def wait_in(pid: int, number: int) -> None:
    """Until the process sleeps in this system call."""

    def is_there() -> bool:
        words = Path(f"/proc/{pid}/syscall").read_text().split()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return words[0] == str(number) and state in "SD"

    wait.until(is_there, lambda: Path(f"/proc/{pid}/syscall").read_text())


@contextmanager
def equal_child(tenant: Tenant) -> Iterator[tuple[int, int]]:
    """A process with the tenant's equal pages, and where they are."""
    ready, told = os.pipe()

    def fill() -> None:
        area = equal_to(tenant)
        os.write(told, struct.pack("Q", address_of(area)))
        signal.pause()

    with forked(fill) as pid:
        (address,) = struct.unpack("Q", os.read(ready, 8))
        yield pid, address


@contextmanager
def ended_but_read(pid: int, address: int) -> Iterator[None]:
    """The process is a zombie; its memory is there, as somebody reads it for ever."""

    def read_for_ever() -> None:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
        syscall(SYS_PREAD64, memory, never_there(), 8, address)

    with forked(read_for_ever) as reader:
        wait_in(reader, SYS_PREAD64)
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        yield


@pytest.fixture
def tenants(ksm: Ksm, start: StartTenant) -> Iterator[list[Tenant]]:
    """Two in the shared domain, merged; ksmd rests."""
    tenants = [start(name, mib=MIB) for name in ("left", "right")]
    ksm.merge(2 * PAGES)
    ksm.rest()
    yield tenants
    assert all(tenant.bad_pages() == 0 for tenant in tenants)


def test_a_child_that_is_being_forked_shares_with_nobody(
    ksm: Ksm, stranger: Group, tenants: list[Tenant]
) -> None:
    """Its thread is in the first cgroup until the fork is done."""
    ready, told = os.pipe()
    go, tell = os.pipe()

    def fork_for_ever() -> None:
        area = equal_to(tenants[0])
        pidfd = never_there()
        arguments = (ctypes.c_uint64 * 8)(CLONE_PIDFD, pidfd, 0, 0, signal.SIGCHLD)
        os.write(told, b".")
        os.read(go, 1)
        syscall(SYS_CLONE3, ctypes.addressof(arguments), ctypes.sizeof(arguments))
        area.close()

    with forked(fork_for_ever) as pid:
        os.read(ready, 1)
        stranger.take(pid)
        os.write(tell, b".")
        wait_in(pid, SYS_CLONE3)
        before = ksm.read("pages_sharing")
        for _ in range(SCANS):
            ksm.scan_once()
        assert ksm.read("pages_sharing") == before


def test_memory_whose_last_thread_has_ended_shares_with_nobody(
    ksm: Ksm, stranger: Group, tenants: list[Tenant]
) -> None:
    """Somebody reads it, for ever; ksmd has never seen it in its domain."""
    with ExitStack() as stack:
        victim, address = stack.enter_context(equal_child(tenants[0]))
        stranger.take(victim)
        stack.enter_context(ended_but_read(victim, address))
        before = ksm.read("pages_sharing")
        for _ in range(SCANS):
            ksm.scan_once()
        assert ksm.read("pages_sharing") == before


def test_memory_whose_last_thread_has_ended_costs_the_first_cgroup_nothing(
    ksm: Ksm, stranger: Group, tenants: list[Tenant]
) -> None:
    """Nobody else would pay for copies: what is merged stays so until it is gone."""
    with ExitStack() as stack:
        victim, address = stack.enter_context(equal_child(tenants[0]))
        ksm.merge(3 * PAGES)
        ksm.rest()
        stranger.take(victim)
        stack.enter_context(ended_but_read(victim, address))
        before = [ksm.read(name) for name in ("domain_unmerged", "pages_sharing")]
        for _ in range(SCANS):
            ksm.scan_once()
        after = [ksm.read(name) for name in ("domain_unmerged", "pages_sharing")]
        assert after == before


@pytest.mark.needs(nodes=2)
def test_memory_whose_last_thread_has_ended_gets_no_pages_on_its_node(
    ksm: Ksm, start: StartTenant, tmp_path: Path
) -> None:
    """Though what it shares elsewhere is held there, and given up."""
    first = [start(name, 0, mib=MIB) for name in ("left", "right")]
    ksm.merge(2 * PAGES)
    with ExitStack() as stack:
        stack.callback(os.close, lend(first[0], tmp_path / "pipe"))
        ksm.rest()
        with numa.running_on(1):
            victim, address = stack.enter_context(equal_child(first[0]))
        for _ in "12":
            ksm.scan_once()
        assert process_stat(victim)["ksm_merging_pages"] == PAGES
        stack.enter_context(ended_but_read(victim, address))
        before = ksm.read("migrate_unshared")
        for _ in range(SCANS + MOST_VAIN):
            ksm.scan_once()
        assert ksm.read("migrate_unshared") == before
    assert all(tenant.bad_pages() == 0 for tenant in first)
