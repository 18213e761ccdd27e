# SPDX-License-Identifier: GPL-2.0-only
"""Who pays for what it takes to leave a domain, and whether there is room for it."""

import contextlib
import ctypes
import itertools
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nuksmlab import domains, processes, stress, wait
from nuksmlab.area import address_of, equal_to, offered
from nuksmlab.domains import Group, group
from nuksmlab.fuzz import model
from nuksmlab.ksm import Ksm
from nuksmlab.paged import SCANS, check_left, frames, page_out, scan_until_left, slots
from nuksmlab.puppet import fork_and_wait, puppet
from nuksmlab.tenant import ANYWHERE, Spec, Tenant

MIB = 2  # more pages than ksmd may pass without a pause
HELD_MIB = 4  # more than a cgroup may be over its limit
CHILDREN = 8  # of one process
USES = 5000  # of one page
ALL_COPIED = 20  # steps, until a child has what it writes to for itself
FEW = 4  # pages, of 512 that are read
MANY = 100  # of steps, until a cgroup has just one page left

libc = ctypes.CDLL(None, use_errno=True)
libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

pytestmark = [
    pytest.mark.skipif(
        not domains.exist() or not Path("/sys/devices/system/node").exists(),
        reason="this kernel has no merge domains, or no nodes",
    ),
    pytest.mark.usefixtures("swap"),
]


@contextlib.contextmanager
def ksmd_on_all_cpus() -> Iterator[None]:
    """By turns, as on a busy machine: what a CPU does later is left behind."""
    ksmd = processes.pid_of("ksmd")
    cpus = os.sched_getaffinity(ksmd)
    ends = threading.Event()

    def move() -> None:
        for cpu in itertools.cycle(cpus):
            os.sched_setaffinity(ksmd, {cpu})
            if ends.is_set():
                return

    mover = threading.Thread(target=move)
    mover.start()
    try:
        yield
    finally:
        ends.set()
        mover.join()
        os.sched_setaffinity(ksmd, cpus)


@contextlib.contextmanager
def holder_of(cgroup: Group) -> Iterator[None]:
    """It keeps memory that cannot be paged out, whatever the cgroup's limit is."""
    kept: list[mmap.mmap] = []

    def hold() -> int:
        kept.append(mmap.mmap(-1, HELD_MIB << 20, flags=mmap.MAP_PRIVATE))
        return int(libc.mlock(address_of(kept[0]), HELD_MIB << 20))

    with puppet(hold) as holder:
        cgroup.take(holder.pid)
        stress.put(Path(f"/proc/{holder.pid}/oom_score_adj"), -1000)
        assert holder.next() == "0"
        yield


@pytest.mark.parametrize("over", [False, True])
def test_who_was_left_does_not_keep_others_by_being_full(
    ksm: Ksm, paged_pair: list[Tenant], old: Group, stranger: Group, over: bool
) -> None:
    """It pays for reading its pages, as long as that takes, if it is not far over."""
    stays, leaves = paged_pair
    for tenant in paged_pair:
        stress.put(Path(f"/proc/{tenant.pid}/oom_score_adj"), -1000)
    with holder_of(old) if over else contextlib.nullcontext():
        stress.put(old.path / "memory.max", 0)
        stranger.take(leaves.pid)
        for _ in range(SCANS):
            ksm.scan_once()
        assert (slots(stays) & slots(leaves) == set()) == (not over)
        assert (domains.left_by(leaves.pid) is None) == (not over)
        assert len(slots(stays)) == stays.equal_pages
        # What ksmd has just read waits in a CPU's batch, where ksmd leaves that CPU
        assert old.paid("swapcached") <= FEW * mmap.PAGESIZE
        old.limit(None)
    check_left(ksm, stays, leaves)


@pytest.mark.slow
@pytest.mark.parametrize("below", [False, True])
def test_reading_takes_no_page_from_who_pays_for_it(
    ksm: Ksm, old: Group, stranger: Group, below: bool
) -> None:
    """Who uses all memory that it may have would be ended for want of one.

    Also where it is a cgroup below that pays, with all that are in it.
    """
    # Shared: Linux 7.3 takes its time to have a private page back. One of them stays,
    # and with it what it takes to have any.
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    offers: list[mmap.mmap] = []

    def use_and_give_back() -> None:
        for _ in range(USES):
            pages[0] = pages[mmap.PAGESIZE] = 1
            pages.madvise(mmap.MADV_REMOVE, 0, mmap.PAGESIZE)

    def offer() -> int:
        offers.append(equal_to(stays))
        return address_of(offers[0])

    with ExitStack() as stack:
        payer = old
        if below:
            old.divide()
            payer = stack.enter_context(group("payer", old))
        spec = Spec("stays", ANYWHERE, MIB)
        stays = stack.enter_context(Tenant(spec, payer.prefix()))
        parent = stack.enter_context(puppet(offer, *[fork_and_wait] * CHILDREN))
        payer.take(parent.pid)
        shared = parent.pid, int(parent.next()), stays.equal_pages
        ksm.merge(2 * stays.equal_pages)
        ksm.rest()
        page_out(lambda: [*frames(stays), *model.frames(*shared)], old)
        children = [int(parent.next()) for _ in range(CHILDREN)]
        steps = [use_and_give_back] * (ALL_COPIED + MANY + CHILDREN)
        user = stack.enter_context(puppet(*steps))
        payer.take(user.pid)
        # What the kernel has charged in advance for small things is kept by each CPU
        os.sched_setaffinity(user.pid, {min(os.sched_getaffinity(user.pid))})
        for _ in range(ALL_COPIED):
            user.next()
        stress.put(old.path / "memory.swap.max", 0)

        def has_one_page_left() -> bool:
            """And no CPU any that was charged in advance."""
            old.settle()
            old.leave(1)
            user.begin()
            ksm.scan_once()
            user.answer()
            return old.left() == 1

        wait.until(has_one_page_left, lambda: f"one page left, not {old.left()}")
        assert old.oom_kills() == 0
        limit = (old.path / "memory.max").read_text()
        with ksmd_on_all_cpus():
            for child in children:
                stranger.take(child)
                user.begin()
                scan_until_left(ksm, child)
                user.answer()
        # Who charges asks for 64 pages first, and keeps others out for that moment
        # (mm/page_counter.c): it may have been found full, but there was always one
        assert old.times("oom") == 0
        assert (old.path / "memory.max").read_text() == limit
        old.limit(None)
        assert slots(stays) == set(model.slots(*shared))


def test_who_cannot_get_what_is_in_swap_is_known_to_be_leaving(
    ksm: Ksm, paged_pair: list[Tenant], stranger: Group
) -> None:
    """There is no memory for its pages."""
    stays, leaves = paged_pair
    stress.put(Path(f"/proc/{leaves.pid}/oom_score_adj"), -1000)
    stress.put(stranger.path / "memory.max", 0)
    stranger.take(leaves.pid)
    for _ in range(SCANS):
        ksm.scan_once()
    assert slots(stays) & slots(leaves)
    assert domains.left_by(leaves.pid) == domains.SHARED
    stranger.limit(None)
    check_left(ksm, stays, leaves)


@pytest.mark.parametrize("limit", [None, 1])  # MiB; its own pages need 2
def test_what_ksmd_reads_is_paid_for_though_the_payer_is_gone(
    ksm: Ksm, stranger: Group, limit: int | None
) -> None:
    """Else a tenant would have it read all that it has, and be limited no more."""
    stress.account_memory()
    gone = Group("gone")
    with group("other") as other, ExitStack() as stack:
        stays, leaves = (
            stack.enter_context(Tenant(Spec(name, ANYWHERE, MIB), gone.prefix()))
            for name in ("stays", "leaves")
        )
        ksm.merge(2 * stays.equal_pages)
        ksm.rest()
        page_out(lambda: frames(stays) | frames(leaves), gone)
        other.take(stays.pid)
        stranger.take(leaves.pid)
        stranger.limit(limit)
        gone.path.rmdir()
        scan_until_left(ksm, leaves.pid)
        assert not slots(stays) & slots(leaves)
        if not limit:  # nor does it see there when others read theirs back
            assert stranger.paid("swapcached") <= FEW * mmap.PAGESIZE
        stranger.limit(None)
        model.check_intact([stays, leaves])
        paid = other.paid("anon") + stranger.paid("anon")
        assert paid >= 2 * stays.equal_pages * mmap.PAGESIZE


@pytest.mark.parametrize("left", [0, 1, 2])  # pages
def test_the_last_one_can_be_read_and_copied_as_others_are_paged_out(
    ksm: Ksm, stranger: Group, left: int
) -> None:
    """Where one page is left, it is not room for both, and room has to be made."""
    stress.account_memory()
    gone = Group("gone")
    kept: list[mmap.mmap] = []
    with group("other") as other, ExitStack() as stack:
        stays = stack.enter_context(Tenant(Spec("stays", ANYWHERE, MIB), gone.prefix()))

        def one() -> int:
            kept.append(offered(equal_to(stays)[: mmap.PAGESIZE]))
            return address_of(kept[0])

        leaves = stack.enter_context(puppet(one))
        gone.take(leaves.pid)
        last = leaves.pid, int(leaves.next()), 1
        for _ in range(SCANS):
            ksm.scan_once()
        page_out(lambda: [*frames(stays), *model.frames(*last)], gone)
        assert slots(stays) >= set(model.slots(*last))
        other.take(stays.pid)
        stranger.take(leaves.pid)
        gone.path.rmdir()
        ballast = Spec("ballast", ANYWHERE, 8, equal=0, private=100, madvised=False)
        stack.enter_context(Tenant(ballast, stranger.prefix()))

        def are_old() -> bool:
            """Its pages, not just used, so that nobody has to be ended for them."""
            with contextlib.suppress(OSError):  # the kernel says that it found less
                stranger.reclaim(1)
            return stranger.used_mib() < 6

        wait.until(are_old, lambda: "paging out")
        # So that no CPU has any left of what was charged in advance
        stranger.limit(stranger.used_mib() - 1)
        stranger.leave(left)
        scan_until_left(ksm, leaves.pid)
        assert not set(model.slots(*last)) & slots(stays)
        stranger.limit(None)
        model.check_intact([stays])


def test_nothing_is_read_in_vain_where_a_copy_has_no_room(
    ksm: Ksm, paged_pair: list[Tenant], old: Group
) -> None:
    """Nor where a cgroup pays for both that has left its domain as a whole."""

    def read_in() -> int:
        words = Path("/proc/vmstat").read_text().split()
        return int(words[words.index("pswpin") + 1])

    stays, leaves = paged_pair
    with group("other") as other:
        other.take(stays.pid)
        stress.put(old.path / "memory.swap.max", 0)
        old.leave(1)
        old.give(6)
        for _ in range(SCANS):  # CPUs have some left that was charged in advance
            ksm.scan_once()
        before = read_in()
        for _ in range(SCANS):
            ksm.scan_once()
        assert read_in() - before < SCANS
        assert domains.left_by(leaves.pid) == domains.SHARED
        old.limit(None)
        stress.put(old.path / "memory.swap.max", "max")
        check_left(ksm, stays, leaves)
        old.take(stays.pid)
