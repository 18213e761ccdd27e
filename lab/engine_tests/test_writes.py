# SPDX-License-Identifier: GPL-2.0-only
"""What nobody wrote to is not read again; what was written to, however, is merged."""

import ctypes
import mmap
import operator
import os
import platform
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from fcntl import ioctl
from pathlib import Path

import pytest

from nuksmlab import wait
from nuksmlab.area import address_of, held_by_a_pipe
from nuksmlab.bench.scanner import Scanner
from nuksmlab.fuzz import model
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import StartTenant

PAGE = mmap.PAGESIZE
PAGES = 64
SIZE = PAGES * PAGE
HUGE = 2 << 20
FREE, MERGEABLE, HUGEPAGE, PAGEOUT = 8, 12, 14, 21  # advice to madvise(2)
KPF_DIRTY = 1 << 4
FIXED = 1 | 2  # of mremap(2): may move, and to there
UNREAD_SCANS = 512  # each page is read once in so many, whatever happens
# Before pages are merged that were not equal so far: the scan that finds them
# written to, the one that reads them, and one more if they are written to meanwhile.
SCANS = 3
SYS_USERFAULTFD, USER_MODE_ONLY = 323, 1
TRACEME, PEEKUSER, CONTINUE, UNTIL_SYSTEM_CALL = 0, 3, 7, 24  # of ptrace(2)
ORIG_RAX, SYS_WRITE = 15 * 8, 1
UFFDIO_API, UFFDIO_REGISTER, UFFDIO_COPY = 0xC018AA3F, 0xC020AA00, 0xC028AA03

libc = ctypes.CDLL(None, use_errno=True)
libc.mremap.restype = ctypes.c_void_p


@pytest.fixture
def scanner(ksm: Ksm) -> Iterator[Scanner]:
    smart = ksm.read("smart_scan")
    yield Scanner(ksm)
    ksm.stop()
    ksm.write("smart_scan", smart)


def some() -> bytes:
    """Pages that nobody else has."""
    return os.urandom(SIZE)


# All areas of a test: those of one that failed would else be merged with others'.
areas_of_test: list[mmap.mmap] = []


@pytest.fixture(autouse=True)
def forget_areas() -> Iterator[None]:
    yield
    while areas_of_test:
        areas_of_test.pop().close()


def mapped(contents: bytes, advice: int | None = None) -> mmap.mmap:
    area = mmap.mmap(-1, len(contents), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if advice is not None:
        area.madvise(advice)
    area.madvise(MERGEABLE)
    area.write(contents)
    areas_of_test.append(area)
    return area


def scan(scanner: Scanner, times: int = 1) -> int:
    """Returns how many pages were read to sum them up."""
    before = scanner.ksm.read("summed")
    for _ in range(times):
        scanner.only_scan()
    return scanner.ksm.read("summed") - before


def by_stores(area: mmap.mmap, contents: bytes) -> None:
    area[:] = contents


def by_a_file(area: mmap.mmap, contents: bytes) -> None:
    file = os.memfd_create("contents")
    os.pwrite(file, contents, 0)
    assert os.preadv(file, [memoryview(area)], 0) == len(contents)
    os.close(file)


def by_new_pages(area: mmap.mmap, contents: bytes) -> None:
    area.madvise(mmap.MADV_DONTNEED)
    area[:] = contents


def by_a_child_that_ends(area: mmap.mmap, contents: bytes) -> None:
    """The pages are shared when they are written to."""
    child = os.fork()
    if child == 0:
        area[:] = some()
        os._exit(0)
    area[:] = contents
    assert os.waitpid(child, 0)[1] == 0


def by_a_userfaultfd(area: mmap.mmap, contents: bytes) -> None:
    uffd = libc.syscall(SYS_USERFAULTFD, os.O_CLOEXEC | USER_MODE_ONLY)
    if uffd < 0:
        pytest.skip("this kernel has no userfaultfd for everybody")
    ioctl(uffd, UFFDIO_API, struct.pack("3Q", 0xAA, 0, 0))
    start = address_of(area)
    ioctl(uffd, UFFDIO_REGISTER, struct.pack("4Q", start, SIZE, 1, 0))
    area.madvise(mmap.MADV_DONTNEED)
    source = ctypes.create_string_buffer(contents, SIZE)
    copy = struct.pack("4Qq", start, ctypes.addressof(source), SIZE, 0, 0)
    ioctl(uffd, UFFDIO_COPY, copy)
    os.close(uffd)


def unseen(area: mmap.mmap, contents: bytes) -> None:
    """The kernel writes, by a mapping of its own."""
    memory = os.open("/proc/self/mem", os.O_WRONLY)
    assert os.pwrite(memory, contents, address_of(area)) == len(contents)
    os.close(memory)


WAYS = (by_stores, by_a_file, by_new_pages, by_a_child_that_ends, by_a_userfaultfd)


@pytest.mark.parametrize("scans", [1, SCANS])
@pytest.mark.parametrize("write", WAYS, ids=lambda write: str(write.__name__))
def test_what_was_written_is_merged(
    ksm: Ksm,
    scanner: Scanner,
    write: Callable[[mmap.mmap, bytes], None],
    scans: int,
) -> None:
    """After its first scan a page is summed up, later it is filed, too."""
    wanted = some()
    there, late = mapped(wanted), mapped(some())
    scan(scanner, scans)
    assert ksm.merged() == 0
    write(late, wanted)
    scan(scanner, SCANS)
    assert ksm.merged() == 2 * PAGES
    assert there[:] == late[:] == wanted


def test_what_stands_still_is_read_once(ksm: Ksm, scanner: Scanner) -> None:
    area = mapped(some())
    assert scan(scanner) >= PAGES
    # One may have its turn
    assert scan(scanner) <= 1
    assert ksm.read("pages_unshared") == PAGES
    wanted = area[:]
    mapped(wanted)
    scan(scanner)
    assert ksm.merged() == 2 * PAGES


def test_what_somebody_held_when_it_was_read_is_read_again(
    ksm: Ksm, scanner: Scanner
) -> None:
    """Whoever holds a page may write to it, and leave no trace."""
    wanted = some()
    there, late = mapped(wanted), mapped(some())
    scan(scanner, SCANS)
    with held_by_a_pipe(late, PAGES):
        unseen(late, some())
        scan(scanner, 2)
        unseen(late, wanted)
    scan(scanner)
    assert ksm.merged() == 2 * PAGES
    assert there[:] == late[:] == wanted


def test_what_left_a_merged_page_and_was_written_again_is_read(
    ksm: Ksm, scanner: Scanner
) -> None:
    """It joined at first sight, so it is read when it leaves."""
    twin, wanted = some(), some()
    mapped(twin), mapped(wanted)
    scan(scanner, SCANS)
    leaves = mapped(twin)
    scan(scanner)
    assert ksm.merged() == 2 * PAGES
    for contents in (some(), wanted):
        leaves[:] = contents
        scan(scanner)
    scan(scanner, SCANS)
    assert ksm.merged() == 3 * PAGES
    assert leaves[:] == wanted


def unmerge_interrupted() -> None:
    """Somebody writes 2 to `run`, and is killed as soon as the kernel has that."""
    script = (
        "import ctypes, os, signal\n"
        "run = os.open('/sys/kernel/mm/ksm/run', os.O_WRONLY)\n"
        f"ctypes.CDLL(None).ptrace({TRACEME}, 0, 0, 0)\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
        "os.write(run, b'2')\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", script])

    def system_call() -> int:
        assert os.WIFSTOPPED(os.waitpid(writer.pid, 0)[1])
        at = ctypes.c_void_p(ORIG_RAX)
        return int(libc.ptrace(PEEKUSER, writer.pid, at, None))

    while system_call() != SYS_WRITE:
        assert libc.ptrace(UNTIL_SYSTEM_CALL, writer.pid, None, None) == 0
    writer.terminate()
    assert libc.ptrace(CONTINUE, writer.pid, None, None) == 0
    # Whoever traces is asked before the signal is delivered
    assert os.WIFSTOPPED(os.waitpid(writer.pid, 0)[1])
    assert libc.ptrace(CONTINUE, writer.pid, None, signal.SIGTERM) == 0
    assert writer.wait() == -signal.SIGTERM


def test_unmerging_that_is_interrupted_forgets_nothing_that_was_written(
    ksm: Ksm, scanner: Scanner
) -> None:
    """Dirty bits of all pages had been taken, and few pages been looked at."""
    wanted = some()
    late = mapped(some())
    scan(scanner)
    late[:] = wanted
    ksm.rest()
    ksm.write("pages_to_scan", PAGES // 8)
    scanned = ksm.read("pages_scanned")
    ksm.start()
    wait.until(lambda: ksm.read("pages_scanned") > scanned, lambda: f"{ksm.counters()}")
    unmerge_interrupted()
    assert ksm.read("run") == 0
    there = mapped(wanted)
    scan(scanner, SCANS)
    assert ksm.merged() == 2 * PAGES
    assert there[:] == late[:] == wanted


def test_what_smart_scan_left_out_is_read(ksm: Ksm, scanner: Scanner) -> None:
    """Its dirty bits are taken nonetheless. It leaves out up to 8 scans in a row."""
    ksm.write("smart_scan", 1)
    wanted = some()
    there, late = mapped(some()), mapped(some())
    for _ in range(2):
        for _ in range(20):
            there[:], late[:] = some(), some()
            scan(scanner)
        there[:], late[:] = wanted, wanted
        scan(scanner, 8 + SCANS)
        assert ksm.merged() == 2 * PAGES
        wanted = some()
        scan(scanner)


def test_smart_scan_leaves_out_so_many_in_a_row_only(
    ksm: Ksm, scanner: Scanner
) -> None:
    """The mmap_lock is held meanwhile: one is read after 256 that are not."""
    ksm.write("smart_scan", 1)
    rows = 16
    area = mapped(os.urandom(rows * UNREAD_SCANS * PAGE))
    before, read, scans = ksm.read("pages_skipped"), 0, 0
    while ksm.read("pages_skipped") == before:
        area[:] = os.urandom(rows * UNREAD_SCANS * PAGE)
        read = scan(scanner)
        scans += 1
    # Of each row one has its turn in a scan, and is older by one less than the others.
    # They part rows of over 500; one in the middle of each is read, too.
    assert read >= rows * scans + rows - 1


def test_what_nobody_wrote_to_is_not_read(scanner: Scanner) -> None:
    areas = [mapped(some()) for _ in "12"]
    scan(scanner, SCANS)
    scans = 16
    # Of all that is scanned, one page in 512, by turns
    assert scan(scanner, scans) <= 2 * PAGES * (scans / UNREAD_SCANS + 0.1)
    written = 7
    for page in range(written):
        areas[0][page * PAGE] = areas[0][page * PAGE]
    # and, of each area, one whose turn it is to be read
    assert written <= scan(scanner, SCANS) <= written + 2 * SCANS


def test_reading_is_no_writing(ksm: Ksm, scanner: Scanner, start: StartTenant) -> None:
    tenant = start("reader", mib=2, equal=0, private=100)
    scan(scanner, SCANS)
    tenant.command("touch")
    assert scan(scanner) <= 2 * 512 / UNREAD_SCANS
    assert ksm.read("pages_unshared") >= 512


def test_what_a_fork_shares_is_left_out_by_smart_scan(
    ksm: Ksm, scanner: Scanner
) -> None:
    """Only one of its mappings is filed; for the others it would be read each time."""
    mapped(some())
    ended, end = os.pipe()
    children = 3
    for _ in range(children):
        if os.fork() == 0:
            os.close(end)
            os.read(ended, 1)
            os._exit(0)
    ksm.write("smart_scan", 1)
    scan(scanner, 12)
    scans = 16
    assert scan(scanner, scans) <= scans * children * PAGES / 2
    os.close(end)
    for _ in range(children):
        os.wait()
    os.close(ended)


def test_merged_pages_are_not_read(ksm: Ksm, scanner: Scanner) -> None:
    wanted = some()
    areas = [mapped(wanted) for _ in "12"]
    scan(scanner, SCANS)
    assert ksm.merged() == 2 * PAGES
    assert scan(scanner, SCANS) == 0
    assert all(area[:] == wanted for area in areas)


def test_who_writes_to_a_merged_page_changes_nobody_elses(
    ksm: Ksm, scanner: Scanner
) -> None:
    wanted, contents = some(), some()
    areas = [mapped(wanted) for _ in "123"]
    scan(scanner, SCANS)
    assert ksm.merged() == 3 * PAGES
    areas[0][:] = contents
    assert areas[1][:] == areas[2][:] == wanted
    assert areas[0][:] == contents


def test_a_newcomer_is_merged_in_one_scan(ksm: Ksm, scanner: Scanner) -> None:
    """With pages that are merged, and with such that are alone so far."""
    merged, alone = some(), some()
    areas = [mapped(merged), mapped(merged), mapped(alone)]
    scan(scanner, SCANS)
    areas += [mapped(merged), mapped(alone)]
    scan(scanner)
    assert ksm.merged() == 5 * PAGES


def test_zeros_are_not_merged_when_they_are_new(ksm: Ksm, scanner: Scanner) -> None:
    """Whoever just got them will fill them, and would pay for a copy of each."""
    mapped(bytes(SIZE)), mapped(bytes(SIZE))
    scan(scanner, SCANS)
    merged = ksm.merged()
    assert merged == 2 * PAGES
    mapped(bytes(SIZE))
    scan(scanner)
    assert ksm.merged() == merged
    scan(scanner)
    assert ksm.merged() == 3 * PAGES


def test_two_newcomers_are_not_merged_before_they_stand_still(
    ksm: Ksm, scanner: Scanner
) -> None:
    contents = some()
    areas = [mapped(contents) for _ in "12"]
    scan(scanner)
    assert ksm.merged() == 0
    for area in areas:
        area[:] = some()
    scan(scanner)
    assert ksm.merged() == 0


def test_what_leaves_a_merged_page_again_and_again_is_left_alone(
    ksm: Ksm, scanner: Scanner
) -> None:
    contents = some()
    areas = [mapped(contents) for _ in "123"]
    scan(scanner, SCANS)
    assert ksm.merged() == 3 * PAGES
    for _ in range(5):
        areas[0][:] = some()
        scan(scanner)
        areas[0][:] = contents
        scan(scanner)
        # One in 512 has its turn to be read, and is equal again
        assert ksm.merged() <= 2 * PAGES + 2
    scan(scanner, SCANS)
    assert ksm.merged() == 3 * PAGES


def test_what_left_a_merged_page_is_merged_after_its_turn(
    ksm: Ksm, scanner: Scanner
) -> None:
    """It is written to before each scan, always the same; one has its turn in each."""
    contents, wanted = (os.urandom(UNREAD_SCANS * PAGE) for _ in "12")
    stays, leaves, _ = mapped(contents), mapped(contents), mapped(wanted)
    scan(scanner, SCANS)
    assert ksm.merged() == 2 * UNREAD_SCANS
    for number in range(1, 3 * SCANS):
        leaves[:] = wanted
        scan(scanner)
        # Read in its turn, and in the scan after that
        assert number <= 2 or ksm.merged() >= UNREAD_SCANS + 2
    assert stays[:] == contents


def test_what_is_read_all_the_time_is_merged(ksm: Ksm, scanner: Scanner) -> None:
    wanted = some()
    there, late = mapped(some()), mapped(some())
    scan(scanner, SCANS)
    there[:], late[:] = wanted, wanted
    for _ in range(SCANS):
        assert there[:] == late[:] == wanted
        scan(scanner)
    assert ksm.merged() == 2 * PAGES


def test_what_is_written_all_the_time_but_stays_equal_is_merged(
    ksm: Ksm, scanner: Scanner
) -> None:
    wanted = some()
    there, late = mapped(some()), mapped(some())
    scan(scanner, SCANS)
    for _ in range(SCANS):
        there[:], late[:] = wanted, wanted
        scan(scanner)
    assert ksm.merged() == 2 * PAGES


@pytest.mark.parametrize("scans", [1, SCANS])
def test_other_pages_that_were_moved_there_are_read(
    ksm: Ksm, scanner: Scanner, scans: int
) -> None:
    """Nobody wrote to them since ksmd took their dirty bits, at another place."""
    wanted = some()
    spare, late = mapped(wanted), mapped(some())
    scan(scanner, scans)
    moved = libc.mremap(
        ctypes.c_void_p(address_of(spare)),
        ctypes.c_size_t(SIZE),
        ctypes.c_size_t(SIZE),
        FIXED,
        ctypes.c_void_p(address_of(late)),
    )
    assert moved == address_of(late)
    there = mapped(wanted)
    scan(scanner, SCANS)
    # By 8 bits of a page's number one in 256 may be taken for what was there before
    assert ksm.merged() >= 2 * (PAGES - 4)
    assert there[:] == late[:] == wanted


def test_what_the_kernel_writes_unseen_is_merged_at_last(ksm: Ksm) -> None:
    wanted = some()
    there, late = mapped(wanted), mapped(some())
    ksm.start()
    ksm.wait_scans(SCANS + 1)
    unseen(late, wanted)
    ksm.wait_scans(UNREAD_SCANS + SCANS)
    assert ksm.merged() == 2 * PAGES
    assert there[:] == late[:] == wanted


def test_pages_that_somebody_holds_are_read(scanner: Scanner) -> None:
    """Whoever holds a page may write to it."""
    area = mapped(some())
    scan(scanner, SCANS)
    count = 8
    with held_by_a_pipe(area, count):
        scan(scanner)
        assert count <= scan(scanner) <= count + 2


def test_pages_of_a_huge_page_are_not_read(ksm: Ksm, scanner: Scanner) -> None:
    if not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("this kernel has no huge pages")
    contents = [os.urandom(2 * HUGE) for _ in "12"]
    area, other = (mapped(content, HUGEPAGE) for content in contents)
    rollup = Path("/proc/self/smaps_rollup").read_text().split()
    if int(rollup[rollup.index("AnonHugePages:") + 1]) == 0:
        pytest.skip("this kernel gave no huge pages")
    scan(scanner, SCANS)
    pages = 4 * HUGE // PAGE
    assert scan(scanner) <= 2 * pages / UNREAD_SCANS
    start = -address_of(area) % HUGE
    area[start] = area[start]
    assert HUGE // PAGE <= scan(scanner, 2) < 1.5 * HUGE // PAGE
    other[:] = contents[0]
    scan(scanner, SCANS)
    assert ksm.merged() == pages
    assert area[:] == other[:] == contents[0]


@pytest.mark.usefixtures("swap")
def test_what_was_paged_out_and_written_meanwhile_is_merged(
    ksm: Ksm, scanner: Scanner
) -> None:
    wanted = some()
    there, late = mapped(wanted), mapped(some())
    scan(scanner, SCANS)
    late[:] = wanted  # and out it goes, before ksmd comes by
    late.madvise(PAGEOUT)
    assert late[:] == wanted
    scan(scanner, SCANS)
    assert ksm.merged() == 2 * PAGES
    assert there[:] == late[:] == wanted


@pytest.fixture
def one_cpu() -> Iterator[None]:
    """What one frees there, one gets."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cpus)})
    yield
    os.sched_setaffinity(0, cpus)


@pytest.mark.usefixtures("swap", "one_cpu")
def test_what_comes_back_to_its_frame_is_merged(ksm: Ksm, scanner: Scanner) -> None:
    """Page by page: the frame that one leaves is the next one to be taken."""
    wanted = some()
    there, late = mapped(wanted), mapped(some())
    scan(scanner, SCANS)
    frames = model.frames(os.getpid(), address_of(late), PAGES)
    for at in range(0, SIZE, PAGE):
        late[at : at + PAGE] = wanted[at : at + PAGE]
        late.madvise(PAGEOUT, at, PAGE)
        assert late[at] == wanted[at]
    back = model.frames(os.getpid(), address_of(late), PAGES)
    assert sum(map(operator.eq, frames, back)) > PAGES // 2
    # Since Linux 7, all of what comes from swap goes by the swap cache, which leaves
    # the same mark as ksmd
    newer = int(platform.release().partition(".")[0]) >= 7
    scan(scanner, UNREAD_SCANS + 1 if newer else SCANS)
    assert ksm.merged() == 2 * PAGES
    assert there[:] == late[:] == wanted


@pytest.mark.usefixtures("swap")
def test_writes_reach_the_swap(scanner: Scanner) -> None:
    """What was written to after ksmd took the dirty bit is not lost by reclaim."""
    area = mapped(some())
    for _ in range(8):
        contents = some()
        area[:] = contents
        scan(scanner)
        area.madvise(PAGEOUT)
        assert area[:] == contents
        scan(scanner)
        area.madvise(PAGEOUT)  # clean now, and in the swap cache
        assert area[:] == contents


def is_marked_dirty(area: mmap.mmap) -> bool:
    """Did ksmd, or anybody, take the dirty bit of its first page?"""
    frame = model.frames(os.getpid(), address_of(area), 1)[0]
    with Path("/proc/kpageflags").open("rb") as flags:
        flags.seek(frame * 8)
        return bool(struct.unpack("Q", flags.read(8))[0] & KPF_DIRTY)


def test_a_page_that_is_used_after_free_says_so(scanner: Scanner) -> None:
    """In the page table, where others look for it: ksmd does not take that bit."""
    area = mapped(some())
    scan(scanner, SCANS)
    assert is_marked_dirty(area)
    assert libc.madvise(ctypes.c_void_p(address_of(area)), PAGE, FREE) == 0
    area[0] = area[0]
    for _ in range(SCANS):
        scan(scanner)
        assert not is_marked_dirty(area)


@pytest.mark.usefixtures("swap", "one_cpu")
def test_a_write_after_free_is_not_lost(ksm: Ksm) -> None:
    """The processor may still have the translation that it wrote by before."""
    ksm.set_speed({"pages_to_scan": 50, "sleep_millisecs": 5})
    ksm.start()
    for turn in range(40):
        area = mapped(os.urandom(1000 * PAGE))

        def taken(area: mmap.mmap = area) -> bool:
            for byte in range(2000):
                area[0] = byte % 256
            return is_marked_dirty(area)

        wait.until(taken, lambda: "ksmd, to take a dirty bit", poll=0)
        assert libc.madvise(ctypes.c_void_p(address_of(area)), PAGE, FREE) == 0
        area[0] = 1 + turn
        libc.madvise(ctypes.c_void_p(address_of(area)), PAGE, PAGEOUT)
        assert area[0] == 1 + turn
        area.close()


def test_trees_keep_nobody_who_has_gone(
    ksm: Ksm, scanner: Scanner, start: StartTenant
) -> None:
    """Neither pages of processes that ended, nor merged ones that nobody has."""
    stays = mapped(some())  # ksmd stops when there is nobody to scan
    tenants = [start(f"vm-{number}", mib=8) for number in range(2)]
    tenants.append(start("alone", mib=8, equal=0, private=100))
    scan(scanner, SCANS)
    assert ksm.read("pages_unshared") >= tenants[2].spec.mib * 256
    for tenant in tenants:
        tenant.quit()
    scan(scanner, SCANS)
    assert ksm.read("pages_unshared") == len(stays) // PAGE
    assert ksm.merged() == 0


def test_chains_of_pages_that_are_gone_are_dropped(ksm: Ksm, scanner: Scanner) -> None:
    stays = mapped(some())
    content = os.urandom(PAGE)
    many = ksm.read("max_page_sharing") + 2
    for _ in range(3):
        area = mapped(content * many)
        scan(scanner, SCANS)
        assert ksm.read("stable_node_chains") == 1
        area.close()
        scan(scanner, SCANS)
        assert ksm.read("stable_node_chains") == 0
        content = os.urandom(PAGE)
    assert ksm.read("pages_unshared") == len(stays) // PAGE


def test_fewer_pages_are_scanned_than_asked_for_only_at_the_end(ksm: Ksm) -> None:
    """Pages that are passed count: ksmd rests after so many as pages_to_scan says."""
    area = mapped(os.urandom(16 * SIZE))
    ksm.start()
    ksm.wait_scans(SCANS + 1)
    ksm.stop()
    ksm.write("pages_to_scan", 100)
    before = ksm.read("pages_scanned"), ksm.read("full_scans")
    ksm.start()
    ksm.wait_scans(4)
    ksm.stop()
    scanned = ksm.read("pages_scanned") - before[0]
    scans = ksm.read("full_scans") - before[1]
    assert scanned >= (scans - 1) * len(area) // PAGE
