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
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nuksmlab import domains, stress, wait
from nuksmlab.area import address_of, equal_to, forget_soft_dirty, offered
from nuksmlab.domains import Group
from nuksmlab.fuzz import model
from nuksmlab.ksm import Ksm
from nuksmlab.paged import (
    SCANS,
    Part,
    check_left,
    frames,
    page_out,
    slots,
)
from nuksmlab.protector import READS, WRITES, Protector
from nuksmlab.puppet import Puppet, fork_and_wait, puppet
from nuksmlab.tenant import ANYWHERE, Spec, Tenant

MIB = 2  # more pages than ksmd may pass without a pause
HELD = 8  # pages; a pipe takes some more
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


def test_no_slot_is_shared_with_who_was_left(
    ksm: Ksm, paged_pair: list[Tenant], stranger: Group
) -> None:
    stays, leaves = paged_pair
    stranger.take(leaves.pid)
    for _ in range(SCANS):
        ksm.scan_once()
    assert domains.left_by(leaves.pid) is None
    assert not slots(stays) & slots(leaves)
    assert len(slots(stays)) == stays.equal_pages  # nothing is read in for others
    model.check_intact(paged_pair)
    assert not frames(stays) & frames(leaves)


def test_nothing_is_left_in_swap_where_others_have_read_it_back(
    ksm: Ksm, paged_pair: list[Tenant], stranger: Group
) -> None:
    """What they have in memory then is still the slot's."""
    stays, leaves = paged_pair
    assert stays.bad_pages() == 0
    stranger.take(leaves.pid)
    for _ in range(SCANS):
        ksm.scan_once()
    assert domains.left_by(leaves.pid) is None
    assert slots(leaves) == set()
    assert not frames(stays) & frames(leaves)
    model.check_intact(paged_pair)


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_was_read_back_does_not_go_back_to_others_slots(
    ksm: Ksm, paged_pair: list[Tenant], old: Group, stranger: Group, when: str
) -> None:
    """As it would: what comes from swap keeps its slot, while others need that."""
    stays, leaves = paged_pair
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
    model.check_intact(paged_pair)


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
    ksm: Ksm, paged_pair: list[Tenant], stranger: Group
) -> None:
    """Writing 2 to run reads nothing in."""
    stays, leaves = paged_pair
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


def test_who_stays_reads_nothing_in(ksm: Ksm, paged_pair: list[Tenant]) -> None:
    """What is merged and paged out stays one within a domain."""
    for _ in range(SCANS):
        ksm.scan_once()
    assert slots(paged_pair[0]) == slots(paged_pair[1])
    assert len(slots(paged_pair[0])) == paged_pair[0].equal_pages


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
