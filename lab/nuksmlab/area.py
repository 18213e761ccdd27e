# SPDX-License-Identifier: GPL-2.0-only
"""Memory of this process itself, offered to KSM, and of a child that has it, too."""

import ctypes
import fcntl
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nuksmlab.tenant import Tenant

# As long as these are protected by turns, nobody else gets their process's lock.
BAIT = 2 << 20

MAYMOVE_DONTUNMAP = 1 | 4  # of mremap(2)


def address_of(area: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(area))


def forget_soft_dirty() -> None:
    """Nothing that this process has is marked as written any more, proc(5)."""
    Path("/proc/self/clear_refs").write_text("4")


def offered(
    contents: bytes, stacked: int = 0, *, forks_have: bool = False
) -> mmap.mmap:
    """With these contents, in small pages, for KSM to merge.

    If the kernel is to look for its pages in so many areas more, there is an empty page
    behind them; these areas are not offered, and forks have them only if they are to.
    """
    length = len(contents) + (mmap.PAGESIZE if stacked else 0)
    area = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE)
    area.madvise(mmap.MADV_NOHUGEPAGE)
    _stack(area, len(contents), stacked, forks_have=forks_have)
    area.madvise(mmap.MADV_MERGEABLE)
    area.write(contents)
    return area


def _stack(area: mmap.mmap, moved: int, count: int, *, forks_have: bool) -> None:
    """So many bytes of it are moved away so often, as by a tenant's `stack`.

    Not all of it, or it would be taken for another one from then on.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mremap.restype = ctypes.c_void_p
    place, length = ctypes.c_void_p(address_of(area)), ctypes.c_size_t(moved)
    if count:
        area[0] = 1
    for _ in range(count):
        left = libc.mremap(place, length, length, MAYMOVE_DONTUNMAP, None)
        assert left != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
        if not forks_have:
            libc.madvise(ctypes.c_void_p(left), length, mmap.MADV_DONTFORK)


def equal_to(
    tenant: Tenant, stacked: int = 0, *, forks_have: bool = False
) -> mmap.mmap:
    """With the contents of its equal pages, as offered()."""
    length = tenant.equal_pages * mmap.PAGESIZE
    with Path(f"/proc/{tenant.pid}/mem").open("rb") as memory:
        memory.seek(int(tenant.facts["equal_at"], 16))
        contents = memory.read(length)
    return offered(contents, stacked, forks_have=forks_have)


@contextmanager
def held_by_a_pipe(area: mmap.mmap, count: int) -> Iterator[None]:
    """So many pages, the first ones of it."""
    held, into = os.pipe()
    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, count * mmap.PAGESIZE)
    vector = (ctypes.c_void_p * 2)(address_of(area), count * mmap.PAGESIZE)
    spliced = ctypes.CDLL(None).vmsplice(into, ctypes.byref(vector), 1, 0)
    assert spliced == count * mmap.PAGESIZE
    yield
    os.close(held)
    os.close(into)


@contextmanager
def child(area: mmap.mmap) -> Iterator[int]:
    """It has what its parent has, and in the end compares that with what was there."""
    wanted = area[:]
    waits, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os.read(waits, 1)
        os._exit(area[:] != wanted)
    os.close(waits)
    try:
        yield pid
    finally:
        os.close(go)
        status = os.waitpid(pid, 0)[1]
    assert status == 0


def keep_mmap_lock() -> tuple[threading.Thread, threading.Event]:
    """A thread has this process's for writing as often as not, until that is set."""
    bait = mmap.mmap(-1, BAIT)
    address, libc = ctypes.c_void_p(address_of(bait)), ctypes.CDLL(None)
    ends = threading.Event()

    def toggle() -> None:
        bait[:] = bytes(BAIT)
        while not ends.is_set():
            for protection in (mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE):
                libc.mprotect(address, ctypes.c_size_t(BAIT), protection)

    toggler = threading.Thread(target=toggle)
    toggler.start()
    return toggler, ends


@contextmanager
def mmap_lock_by_turns() -> Iterator[None]:
    """This process has it for writing as often as not."""
    toggler, ends = keep_mmap_lock()
    try:
        yield
    finally:
        ends.set()
        toggler.join()
