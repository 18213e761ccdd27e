# SPDX-License-Identifier: GPL-2.0-only
"""Merged pages that a process has by a fork, or paged out, and moves elsewhere."""

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import pairwise

import pytest

from nuksmlab import numa, stress, wait
from nuksmlab.area import address_of, held_by_a_pipe
from nuksmlab.fuzz import model
from nuksmlab.ksm import Ksm, process_stat
from nuksmlab.puppet import puppet

PAGE = mmap.PAGESIZE
PAGES = 256
SIZE = PAGES * PAGE
SCANS = 4
ROUNDS, HOPS = 50, 50
MAYMOVE_FIXED = 3

# Bytes from the beginning of a file: the index of such a page takes 49 bits.
FAR = 1 << 60

# Equal pages of which one is filed as merged; and which.
ALIKE, FILED = 10, 5

pytestmark = [
    # Where there are domains, no page is merged that somebody has where ksmd is not.
    pytest.mark.undivided,
    pytest.mark.skipif(
        len(numa.online()) < 2, reason="pages are moved from one node to another"
    ),
]


def empty_file() -> int:
    file = os.memfd_create("far")
    os.ftruncate(file, FAR + SIZE)
    return file


def no_file() -> int:
    return os.open("/dev/zero", os.O_RDWR)


def filled(mergeable: bool, far: Callable[[], int] | None = None) -> mmap.mmap:
    """Far in that file, if there is one."""
    if not far:
        area = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE)
    else:
        file = far()
        area = mmap.mmap(file, SIZE, flags=mmap.MAP_PRIVATE, offset=FAR)
        os.close(file)
    area.madvise(mmap.MADV_NOHUGEPAGE)
    if mergeable:
        area.madvise(mmap.MADV_MERGEABLE)
    area.write(b"".join(bytes([n, 1]) * (PAGE // 2) for n in range(PAGES)))
    return area


def move(bytes_: int, *places: int) -> None:
    """What is at the first of these addresses, to all others in turn."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mremap.restype = ctypes.c_void_p
    length = ctypes.c_size_t(bytes_)
    for here, there in pairwise(places):
        moved = libc.mremap(
            *(ctypes.c_void_p(here), length, length, MAYMOVE_FIXED),
            ctypes.c_void_p(there),
        )
        assert moved == there


def hop(area: mmap.mmap, told: int) -> None:
    """Moves what it has by the fork to and fro, for ever, and reads it."""
    here, wanted = address_of(area), area[:]
    spare = address_of(mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE))
    while True:
        move(SIZE, *HOPS * [here, spare], here)
        assert area[:] == wanted
        os.write(told, b".")


@pytest.fixture
def hopper(ksm: Ksm, far: Callable[[], int] | None) -> Iterator[int]:
    """Where it tells of its hops, with pages that are merged for its parent."""
    filed = filled(mergeable=True)
    for _ in range(SCANS):
        ksm.scan_once()
    area = filled(mergeable=False, far=far)
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
@pytest.mark.parametrize("far", [None, empty_file])
def test_what_is_moved_while_its_page_is_moved_is_found(
    ksm: Ksm, hopper: int, far: Callable[[], int] | None
) -> None:
    """Or is not merged, as its index would take too many bits."""
    one, two = numa.online()[:2]
    for turn in range(ROUNDS):
        ends = (one, two) if turn % 2 else (two, one)
        stress.migrate(os.getpid(), *ends)
        assert os.read(hopper, 4096), "it found wrong contents, or the kernel failed"
    assert far or ksm.read("pages_sharing") >= PAGES


@pytest.mark.parametrize("file", [empty_file, no_file])
def test_who_is_too_far_to_be_found_keeps_nobody_from_merging(
    ksm: Ksm, file: Callable[[], int]
) -> None:
    """He has the same pages, and was there first."""
    far = filled(mergeable=True, far=file)
    for _ in range(SCANS):
        ksm.scan_once()
    near = [filled(mergeable=True) for _ in "12"]
    for _ in range(SCANS):
        ksm.scan_once()
    assert ksm.read("pages_sharing") >= PAGES
    assert all(area[:] == far[:] for area in near)


@pytest.fixture
def cgroup() -> Iterator[stress.Cgroup]:
    """Whose memory can be paged out; this process is in it."""
    stress.account_memory()
    made = stress.Cgroup("moved")
    stress.put(made.path / "cgroup.procs", os.getpid())
    yield made
    stress.put(stress.CGROUPS / "cgroup.procs", os.getpid())
    made.end()


def page_out(cgroup: stress.Cgroup, pid: int, first: int, pages: int) -> None:
    """So many of a process's pages, though they have other references."""

    def is_done() -> bool:
        cgroup.settle()
        return not model.frames(pid, first, pages)

    wait.until(is_done, lambda: "pages to be paged out")


def fork_for_ever(area: mmap.mmap, told: int) -> None:
    """Each child reads the page that is filed where it was once, and ends."""
    wanted = area[FILED * PAGE : (FILED + 1) * PAGE]
    while True:
        pid = os.fork()
        if pid == 0:
            os._exit(area[FILED * PAGE : (FILED + 1) * PAGE] != wanted)
        assert os.waitpid(pid, 0)[1] == 0
        os.write(told, b".")


@pytest.mark.slow
@pytest.mark.usefixtures("swap")
def test_forks_of_who_moved_what_was_paged_out_are_found(
    ksm: Ksm, cgroup: stress.Cgroup
) -> None:
    """At an address where one of its pages is filed as merged it has another one that
    is merged with it. Its forks have that, too, and are looked for where it is."""
    area = mmap.mmap(-1, (ALIKE + 1) * PAGE, flags=mmap.MAP_PRIVATE)
    spare = mmap.mmap(-1, ALIKE * PAGE, flags=mmap.MAP_PRIVATE)
    here, filed = address_of(area), address_of(area) + FILED * PAGE
    area.madvise(mmap.MADV_MERGEABLE, 0, ALIKE * PAGE)
    area.write(os.urandom(PAGE) * ALIKE)
    ksm.merge(ALIKE)
    frame = model.frames(os.getpid(), here, 1)
    forks, told = os.pipe()
    with ExitStack() as stack:
        # So that it is the merged one that is read back
        with held_by_a_pipe(area, 1):
            page_out(cgroup, os.getpid(), here, ALIKE)
            parent = stack.enter_context(
                puppet(
                    partial(area.__getitem__, FILED * PAGE),
                    partial(move, ALIKE * PAGE, here, address_of(spare), here + PAGE),
                    partial(area.__getitem__, FILED * PAGE),
                    partial(fork_for_ever, area, told),
                )
            )
            os.close(told)
            area.close()
            parent.next()
            for _ in range(SCANS):
                ksm.scan_once()
            assert process_stat(parent.pid)["ksm_merging_pages"] == 1
            page_out(cgroup, parent.pid, filed, 1)
            parent.next()
            parent.next()
            assert model.frames(parent.pid, filed, 1) == frame
        parent.begin()
        for turn in range(ROUNDS // 5):
            for node in numa.online()[:2] * HOPS:
                stress.move_page(parent.pid, filed, node)
            assert os.read(forks, 4096), f"the kernel failed in turn {turn}"
    os.close(forks)
