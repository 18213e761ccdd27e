# SPDX-License-Identifier: GPL-2.0-only
"""Memory of this process itself, offered to KSM, and of a child that has it, too."""

import ctypes
import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nuksmlab.tenant import Tenant


def address_of(area: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(area))


def forget_soft_dirty() -> None:
    """Nothing that this process has is marked as written any more, proc(5)."""
    Path("/proc/self/clear_refs").write_text("4")


def offered(contents: bytes) -> mmap.mmap:
    """With these contents, in small pages, for KSM to merge."""
    area = mmap.mmap(-1, len(contents), flags=mmap.MAP_PRIVATE)
    area.madvise(mmap.MADV_NOHUGEPAGE)
    area.madvise(mmap.MADV_MERGEABLE)
    area.write(contents)
    return area


def equal_to(tenant: Tenant) -> mmap.mmap:
    """With the contents of its equal pages."""
    length = tenant.equal_pages * mmap.PAGESIZE
    with Path(f"/proc/{tenant.pid}/mem").open("rb") as memory:
        memory.seek(int(tenant.facts["equal_at"], 16))
        contents = memory.read(length)
    return offered(contents)


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
