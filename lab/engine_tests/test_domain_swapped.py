# SPDX-License-Identifier: GPL-2.0-only
"""Who goes to another domain while its merged pages are paged out.

They are one in swap, too: mincore() would tell who left when others read theirs.
"""

import contextlib
import ctypes
import errno
import mmap
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nuksmlab import domains, stress, wait
from nuksmlab.area import address_of, equal_to, forget_soft_dirty, offered
from nuksmlab.domains import Group, group
from nuksmlab.fuzz import model
from nuksmlab.ksm import Ksm
from nuksmlab.protector import READS, WRITES, Protector
from nuksmlab.puppet import Puppet, fork_and_wait, puppet
from nuksmlab.tenant import ANYWHERE, Spec, Tenant

MIB = 2  # more pages than ksmd may pass without a pause
SCANS = 3
HELD = 8  # pages; a pipe takes some more
HELD_MIB = 4  # more than a cgroup may be over its limit
CHILDREN = 8  # of one process
USES = 5000  # of one page
ALL_COPIED = 20  # steps, until a child has what it writes to for itself
MANY = 100  # of steps, until a cgroup has just one page left
MLOCK_ONFAULT = 1

libc = ctypes.CDLL(None, use_errno=True)
libc.vmsplice.restype = ctypes.c_ssize_t
libc.mlock2.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

pytestmark = [
    pytest.mark.skipif(
        not domains.exist() or not Path("/sys/devices/system/node").exists(),
        reason="this kernel has no merge domains, or no nodes",
    ),
    pytest.mark.usefixtures("swap"),
]


@pytest.fixture
def old() -> Iterator[Group]:
    """The cgroup whose memory is paged out, in the domain that all begin in."""
    stress.account_memory()
    with group("old") as old:
        yield old


Part = tuple[int, int, int]  # a process, where in it, and how many pages


def equal_part(tenant: Tenant) -> Part:
    """Those that are equal to others'."""
    return tenant.pid, int(tenant.facts["equal_at"], 16), tenant.equal_pages


def slots(tenant: Tenant) -> set[int]:
    return set(model.slots(*equal_part(tenant)))


def frames(tenant: Tenant) -> set[int]:
    return set(model.frames(*equal_part(tenant)))


def page_out(in_memory: Callable[[], Iterable[int]], *cgroups: Group) -> None:
    """All that is in memory yet."""

    def is_out() -> bool:
        for cgroup in cgroups:
            with contextlib.suppress(OSError):  # the kernel says that it found less
                cgroup.reclaim(64)
        return not any(in_memory())

    wait.until(is_out, lambda: "paging out")


@pytest.fixture
def pair(ksm: Ksm, old: Group, stranger: Group) -> Iterator[list[Tenant]]:
    """Two tenants with the same pages, all paged out, as they are merged."""
    assert stranger.given() == "5"
    with ExitStack() as stack:
        tenants = [
            stack.enter_context(Tenant(Spec(name, ANYWHERE, MIB), old.prefix()))
            for name in ("stays", "leaves")
        ]
        ksm.merge(2 * tenants[0].equal_pages)
        ksm.rest()

        page_out(lambda: frames(tenants[0]) | frames(tenants[1]), old)
        assert slots(tenants[0]) == slots(tenants[1])
        yield tenants


def wait_left(ksm: Ksm, pid: int) -> None:
    """In as many scans as it takes."""

    def has_left() -> bool:
        ksm.scan_once()
        return domains.left_by(pid) is None

    wait.until(has_left, lambda: f"leaving; {ksm.counters()}")


def check_left(ksm: Ksm, stays: Tenant, leaves: Tenant) -> None:
    """Some scans after nothing keeps it any more."""
    for _ in range(SCANS):
        ksm.scan_once()
    assert domains.left_by(leaves.pid) is None
    assert not slots(stays) & slots(leaves)
    model.check_intact([stays, leaves])


def test_no_slot_is_shared_with_who_was_left(
    ksm: Ksm, pair: list[Tenant], stranger: Group
) -> None:
    stays, leaves = pair
    stranger.take(leaves.pid)
    for _ in range(SCANS):
        ksm.scan_once()
    assert domains.left_by(leaves.pid) is None
    assert not slots(stays) & slots(leaves)
    assert len(slots(stays)) == stays.equal_pages  # nothing is read in for others
    model.check_intact(pair)
    assert not frames(stays) & frames(leaves)


def test_nothing_is_left_in_swap_where_others_have_read_it_back(
    ksm: Ksm, pair: list[Tenant], stranger: Group
) -> None:
    """What they have in memory then is still the slot's."""
    stays, leaves = pair
    assert stays.bad_pages() == 0
    stranger.take(leaves.pid)
    for _ in range(SCANS):
        ksm.scan_once()
    assert domains.left_by(leaves.pid) is None
    assert slots(leaves) == set()
    assert not frames(stays) & frames(leaves)
    model.check_intact(pair)


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_was_read_back_does_not_go_back_to_others_slots(
    ksm: Ksm, pair: list[Tenant], old: Group, stranger: Group, when: str
) -> None:
    """As it would: what comes from swap keeps its slot, while others need that."""
    stays, leaves = pair
    if when == "before":
        assert leaves.bad_pages() == 0
    stranger.take(leaves.pid)
    if when == "after":
        assert leaves.bad_pages() == 0
    for _ in range(SCANS):
        ksm.scan_once()
    assert domains.left_by(leaves.pid) is None
    page_out(lambda: frames(leaves), old, stranger)
    assert not slots(stays) & slots(leaves)
    model.check_intact(pair)


@contextlib.contextmanager
def parent_of_a_stranger(
    old: Group, stranger: Group, contents: bytes
) -> Iterator[tuple[Puppet, Part, Part]]:
    """A process whose child is in another domain. What both have is paged out.

    As its next step it reads that back, and offers it. Its child offers nothing, so
    ksmd does not come there.
    """
    area = mmap.mmap(-1, len(contents), flags=mmap.MAP_PRIVATE)
    area.madvise(mmap.MADV_NOHUGEPAGE)
    pages = len(contents) // mmap.PAGESIZE

    def fill() -> int:
        area.write(contents)
        return address_of(area)

    def read_and_offer() -> bool:
        area.madvise(mmap.MADV_MERGEABLE)
        return area[:] == contents

    with puppet(fill, fork_and_wait, read_and_offer) as parent:
        old.take(parent.pid)
        address = int(parent.next())
        child = int(parent.next())
        try:
            stranger.take(child)
            its, childs = (parent.pid, address, pages), (child, address, pages)
            page_out(lambda: model.frames(*its), old)
            assert set(model.slots(*its)) == set(model.slots(*childs))
            yield parent, its, childs
        finally:
            os.kill(child, signal.SIGKILL)


def test_what_others_have_in_swap_gives_way_to_what_is_merged(
    ksm: Ksm, old: Group, stranger: Group
) -> None:
    """It does not become a merged page: strangers would get into the others' slot."""
    spec = Spec("third", ANYWHERE, MIB)
    with Tenant(spec) as third:
        contents = equal_to(third)[:]
    with ExitStack() as stack:
        families = [
            stack.enter_context(parent_of_a_stranger(old, stranger, contents))
            for _ in "12"
        ]
        parents, theirs, childrens = zip(*families, strict=True)
        # Of two pages, the one scanned later would stay
        ksm.write_text("placement", "first")
        third = stack.enter_context(Tenant(spec, old.prefix()))
        for _ in range(SCANS):
            ksm.scan_once()
        assert [parent.next() for parent in parents] == ["True", "True"]
        ksm.merge(3 * third.equal_pages)
        ksm.rest()
        for part in theirs:
            assert set(model.frames(*part)) == frames(third)
        page_out(lambda: frames(third), old)
        for part in childrens:
            assert not set(model.slots(*part)) & slots(third)
        model.check_intact([third])


def test_what_was_paged_out_before_all_was_unmerged_is_not_forgotten(
    ksm: Ksm, pair: list[Tenant], stranger: Group
) -> None:
    """Writing 2 to run reads nothing in."""
    stays, leaves = pair
    ksm.unmerge()
    assert slots(stays) == slots(leaves)
    stranger.take(leaves.pid)
    check_left(ksm, stays, leaves)


@pytest.mark.parametrize("part", [1, 2])
def test_who_offers_pages_no_more_shares_no_slot(
    ksm: Ksm, old: Group, stranger: Group, part: int
) -> None:
    """ksmd does not come there when the process goes to another domain."""
    assert stranger.given() == "5"
    kept: list[mmap.mmap] = []
    with ExitStack() as stack:
        stays = stack.enter_context(Tenant(Spec("stays", ANYWHERE, MIB), old.prefix()))
        pages = stays.equal_pages // part

        def fill() -> int:
            kept.append(equal_to(stays))
            return address_of(kept[0])

        def stop() -> None:
            kept[0].madvise(mmap.MADV_UNMERGEABLE, 0, pages * mmap.PAGESIZE)

        leaves = stack.enter_context(
            puppet(fill, stop, lambda: kept[0][:] == equal_to(stays)[:])
        )
        old.take(leaves.pid)
        address = int(leaves.next())
        ksm.merge(2 * stays.equal_pages)
        ksm.rest()
        part_of = leaves.pid, address, pages
        page_out(lambda: [*frames(stays), *model.frames(*part_of)], old)
        assert slots(stays) >= set(model.slots(*part_of))
        leaves.next()
        assert not slots(stays) & set(model.slots(*part_of))
        assert leaves.next() == "True"


@pytest.mark.parametrize("locked", [True, False])
def test_who_offers_pages_no_more_has_no_merged_one(
    ksm: Ksm, old: Group, stranger: Group, locked: bool
) -> None:
    """Though they come back from swap as such, as somebody held them."""
    assert stranger.given() == "5"
    kept: list[mmap.mmap] = []
    with ExitStack() as stack:
        stays = stack.enter_context(Tenant(Spec("stays", ANYWHERE, MIB), old.prefix()))
        length = HELD * mmap.PAGESIZE

        def fill() -> int:
            kept.append(equal_to(stays))
            return address_of(kept[0])

        def hold() -> int:
            _, into = os.pipe()
            vector = (ctypes.c_void_p * 2)(address_of(kept[0]), length)
            return int(libc.vmsplice(into, ctypes.byref(vector), 1, 0))

        def stop() -> bool:
            if locked and libc.mlock2(address_of(kept[0]), length, MLOCK_ONFAULT):
                return False
            kept[0].madvise(mmap.MADV_UNMERGEABLE, 0, length)
            return kept[0][:] == equal_to(stays)[:]

        leaves = stack.enter_context(puppet(fill, hold, stop))
        old.take(leaves.pid)
        part_of = leaves.pid, int(leaves.next()), HELD
        ksm.merge(2 * stays.equal_pages)
        ksm.rest()
        assert int(leaves.next()) == length
        page_out(lambda: [*frames(stays), *model.frames(*part_of)], old)
        assert stays.bad_pages() == 0
        assert leaves.next() == "True"
        assert not set(model.frames(*part_of)) & frames(stays)


def test_who_may_not_read_its_pages_goes_on_offering_them(
    ksm: Ksm, old: Group, stranger: Group
) -> None:
    """As nobody could un-merge them, and they would stay shared."""
    assert stranger.given() == "5"
    try:
        Protector(READS).close()
    except OSError as error:
        pytest.skip(f"this kernel's userfaultfd does not protect from reading: {error}")
    kept: list[mmap.mmap] = []
    with ExitStack() as stack:
        stays = stack.enter_context(Tenant(Spec("stays", ANYWHERE, MIB), old.prefix()))

        def fill() -> int:
            kept.append(equal_to(stays))
            return address_of(kept[0])

        def stop() -> str:
            try:
                kept[0].madvise(mmap.MADV_UNMERGEABLE)
            except OSError as error:
                return errno.errorcode[error.errno or 0]
            return "none"

        def protect() -> None:
            protectors.append(Protector(READS))
            protectors[0].change(kept[0], HELD, True)

        def no_longer() -> None:
            protectors[0].close()

        protectors: list[Protector] = []
        leaves = stack.enter_context(puppet(fill, protect, stop, no_longer))
        old.take(leaves.pid)
        part_of = leaves.pid, int(leaves.next()), HELD
        ksm.merge(2 * stays.equal_pages)
        ksm.rest()
        leaves.next()
        page_out(lambda: [*frames(stays), *model.frames(*part_of)], old)
        assert leaves.next() == "EBUSY"
        leaves.next()
        stranger.take(leaves.pid)
        for _ in range(SCANS):
            ksm.scan_once()
        assert domains.left_by(leaves.pid) is None
        page_out(lambda: model.frames(*part_of), old, stranger)
        assert not set(model.slots(*part_of)) & slots(stays)


def test_marks_of_writes_stay_where_a_slot_gives_way(
    ksm: Ksm, old: Group, stranger: Group
) -> None:
    """Who saves a process step by step looks at these: CRIU, live migration."""
    pages = 2 * HELD
    kept: list[mmap.mmap] = []

    def fill() -> int:
        kept.append(offered(os.urandom(pages * mmap.PAGESIZE)))
        return address_of(kept[0])

    def mark() -> None:
        """One half as written, the other one as protected."""
        forget_soft_dirty()
        kept[0][HELD * mmap.PAGESIZE :] = kept[0][HELD * mmap.PAGESIZE :]
        protectors.append(Protector(WRITES))
        protectors[0].change(kept[0], HELD, True)

    protectors: list[Protector] = []
    with puppet(fill, mark, fork_and_wait) as leaves:
        old.take(leaves.pid)
        part = leaves.pid, int(leaves.next()), pages
        for _ in range(SCANS):
            ksm.scan_once()
        leaves.next()
        page_out(lambda: model.frames(*part), old)
        child = int(leaves.next())
        try:
            stranger.take(leaves.pid)
            for _ in range(SCANS):
                ksm.scan_once()
            assert not model.slots(*part)
            halves = [False] * HELD + [True] * HELD
            assert model.marks(*part, model.SOFT_DIRTY) == halves
            assert model.marks(*part, model.WRITE_PROTECTED) == halves[::-1]
        finally:
            os.kill(child, signal.SIGKILL)


def test_who_stays_reads_nothing_in(ksm: Ksm, pair: list[Tenant]) -> None:
    """What is merged and paged out stays one within a domain."""
    for _ in range(SCANS):
        ksm.scan_once()
    assert slots(pair[0]) == slots(pair[1])
    assert len(slots(pair[0])) == pair[0].equal_pages


@contextlib.contextmanager
def holder_of(cgroup: Group) -> Iterator[None]:
    """It keeps memory that cannot be paged out, whatever the cgroup's limit is."""
    kept: list[mmap.mmap] = []

    def hold() -> int:
        kept.append(mmap.mmap(-1, HELD_MIB << 20, flags=mmap.MAP_PRIVATE))
        return int(libc.mlock2(address_of(kept[0]), HELD_MIB << 20, 0))

    with puppet(hold) as holder:
        cgroup.take(holder.pid)
        stress.put(Path(f"/proc/{holder.pid}/oom_score_adj"), -1000)
        assert holder.next() == "0"
        yield


@pytest.mark.parametrize("over", [False, True])
def test_who_was_left_does_not_keep_others_by_being_full(
    ksm: Ksm, pair: list[Tenant], old: Group, stranger: Group, over: bool
) -> None:
    """It pays for reading its pages, as long as that takes, if it is not far over."""
    stays, leaves = pair
    for tenant in pair:
        stress.put(Path(f"/proc/{tenant.pid}/oom_score_adj"), -1000)
    with holder_of(old) if over else contextlib.nullcontext():
        stress.put(old.path / "memory.max", 0)
        stranger.take(leaves.pid)
        for _ in range(SCANS):
            ksm.scan_once()
        assert (slots(stays) & slots(leaves) == set()) == (not over)
        assert (domains.left_by(leaves.pid) is None) == (not over)
        assert len(slots(stays)) == stays.equal_pages
        assert old.paid("swapcached") == 0
        old.limit(None)
    check_left(ksm, stays, leaves)


@pytest.mark.parametrize("below", [False, True])
def test_reading_takes_no_page_from_who_pays_for_it(
    ksm: Ksm, old: Group, stranger: Group, below: bool
) -> None:
    """Who uses all memory that it may have would be ended for want of one.

    Also where it is a cgroup below that pays, with all that are in it.
    """
    # Shared, as Linux 7.3 takes its time to have a private page back; one of them stays,
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
        missed = old.times("max")
        for child in children:
            stranger.take(child)
            user.begin()
            wait_left(ksm, child)
            user.answer()
        assert old.oom_kills() == 0
        assert old.times("max") == missed  # nobody found it full
        assert (old.path / "memory.max").read_text() == limit
        old.limit(None)
        assert slots(stays) == set(model.slots(*shared))


def test_who_cannot_get_what_is_in_swap_is_known_to_be_leaving(
    ksm: Ksm, pair: list[Tenant], stranger: Group
) -> None:
    """There is no memory for its pages."""
    stays, leaves = pair
    stress.put(Path(f"/proc/{leaves.pid}/oom_score_adj"), -1000)
    stress.put(stranger.path / "memory.max", 0)
    stranger.take(leaves.pid)
    for _ in range(SCANS):
        ksm.scan_once()
    assert slots(stays) & slots(leaves)
    assert domains.left_by(leaves.pid) == domains.SHARED
    stranger.limit(None)
    check_left(ksm, stays, leaves)


def test_what_stays_elsewhere_ends_no_sharing_in_the_new_domain(
    ksm: Ksm, old: Group, stranger: Group
) -> None:
    """What cannot be copied yet is tried again, and nothing else is given up."""
    kept: list[mmap.mmap] = []
    with ExitStack() as stack:
        stays = stack.enter_context(Tenant(Spec("stays", ANYWHERE, MIB), old.prefix()))
        spec = Spec("peer", ANYWHERE, MIB, seed=2)
        peer = stack.enter_context(Tenant(spec, stranger.prefix()))

        def a_few() -> int:
            kept.append(offered(equal_to(stays)[: HELD * mmap.PAGESIZE]))
            return address_of(kept[0])

        def new_ones() -> int:
            kept.append(equal_to(peer))
            return address_of(kept[1])

        leaves = stack.enter_context(puppet(a_few, new_ones))
        old.take(leaves.pid)
        few = leaves.pid, int(leaves.next()), HELD
        for _ in range(SCANS):
            ksm.scan_once()
        page_out(lambda: [*frames(stays), *model.frames(*few)], old)
        assert slots(stays) >= set(model.slots(*few))
        for pid in (stays.pid, leaves.pid, peer.pid):
            stress.put(Path(f"/proc/{pid}/oom_score_adj"), -1000)

        def scan_in_vain() -> None:
            """There is no memory for a copy, and nothing is paged out for that."""
            stress.put(stranger.path / "memory.swap.max", 0)
            stress.put(stranger.path / "memory.max", 0)
            ksm.scan_once()
            stranger.limit(None)
            stress.put(stranger.path / "memory.swap.max", "max")

        stranger.take(leaves.pid)
        scan_in_vain()
        new = leaves.pid, int(leaves.next()), peer.equal_pages

        def are_merged() -> bool:
            """In more scans, while others hold a page, as CPUs in their lists do."""
            scan_in_vain()
            return set(model.frames(*new)) == frames(peer)

        wait.until(are_merged, lambda: f"merging; {ksm.counters()}")
        page_out(lambda: [*frames(peer), *model.frames(*new)], stranger)
        scan_in_vain()
        assert domains.left_by(leaves.pid) == domains.SHARED
        assert len(slots(peer)) == peer.equal_pages
        assert slots(peer) == set(model.slots(*new))
        for _ in range(SCANS):
            ksm.scan_once()
        assert domains.left_by(leaves.pid) is None
        assert not set(model.slots(*few)) & slots(stays)
        assert slots(peer) == set(model.slots(*new))


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
        wait_left(ksm, leaves.pid)
        assert not slots(stays) & slots(leaves)
        if not limit:  # nor does it see there when others read theirs back
            assert stranger.paid("swapcached") == 0
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
        wait_left(ksm, leaves.pid)
        assert not set(model.slots(*last)) & slots(stays)
        stranger.limit(None)
        model.check_intact([stays])


def test_nothing_is_read_in_vain_where_a_copy_has_no_room(
    ksm: Ksm, pair: list[Tenant], old: Group
) -> None:
    """Nor where a cgroup pays for both that has left its domain as a whole."""

    def read_in() -> int:
        words = Path("/proc/vmstat").read_text().split()
        return int(words[words.index("pswpin") + 1])

    stays, leaves = pair
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


@pytest.mark.windows
def test_what_is_paged_out_while_ksmd_comes_is_not_left_there(
    ksm: Ksm, old: Group, stranger: Group
) -> None:
    """Between ksmd's finding a merged page, and its un-merging it."""
    windows = stress.Windows()
    with ExitStack() as stack:
        stays, leaves = (
            stack.enter_context(Tenant(Spec(name, ANYWHERE, MIB), old.prefix()))
            for name in ("stays", "leaves")
        )
        ksm.merge(2 * stays.equal_pages)
        ksm.rest()
        before = ksm.read("domain_unmerged")
        stranger.take(leaves.pid)
        windows.open({"domain": 500_000})
        stack.callback(windows.close)
        ksm.start()
        wait.until(
            lambda: ksm.read("domain_unmerged") > before, lambda: "the first page"
        )
        page_out(lambda: frames(leaves) & frames(stays), old)
        windows.close()
        check_left(ksm, stays, leaves)
