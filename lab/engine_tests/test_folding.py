# SPDX-License-Identifier: GPL-2.0-only
"""Replicas that have to go: nobody uses or may have them, or memory is short."""

import mmap
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from nuksmlab import numa, stress
from nuksmlab.area import address_of, equal_to, offered
from nuksmlab.forkers import family
from nuksmlab.fuzz import model
from nuksmlab.ksm import RARELY, Ksm
from nuksmlab.looks import SOON, look, reading
from nuksmlab.puppet import fork_and_wait, puppet
from nuksmlab.replicas import count, wait_for
from nuksmlab.shares import merge
from nuksmlab.tenant import StartTenant, Tenant

pytestmark = [pytest.mark.needs(nodes=2), pytest.mark.usefixtures("often")]

# Of each of a pair.
MIB = 2
PAGES = MIB * 256

# So many of a page, with so many areas each, are too long to find: more than 65,536.
MAPPINGS, MANY_AREAS = 64, 1100

# Those of whom each fork copies so many areas have their lock most of the time.
FORKERS, FORKED_AREAS = 3, 600


def overfill(start: StartTenant, node: int) -> list[Tenant]:
    """Leaves less than the low watermark free: the kernel begins to reclaim."""
    low = numa.high_watermark_mib(node) * 5 // 6
    fillers: list[Tenant] = []
    while (room := numa.free_mib(node) - (low - low // 16)) > 0:
        name = f"filler-{node}-{len(fillers)}"
        fillers.append(start(name, node, mib=room, equal=0, private=100))
    return fillers


@dataclass
class Forked:
    """Who has the pair's pages, as has a child of his that ksmd does not know of."""

    pid: int
    child: int
    area: int

    def nodes(self, pages: int) -> list[list[int]]:
        """For each of both, where its pages are."""
        return [numa.nodes_of(pid, self.area, pages) for pid in (self.pid, self.child)]

    def of_child(self, pages: int) -> bytes:
        """What is there for it."""
        with Path(f"/proc/{self.child}/mem").open("rb") as memory:
            memory.seek(self.area)
            return memory.read(pages * mmap.PAGESIZE)

    def end_child(self) -> None:
        os.kill(self.child, signal.SIGKILL)


@contextmanager
def forked_beside(ksm: Ksm, pair: Sequence[Tenant]) -> Iterator[list[Forked]]:
    """Two others, one on each node, have the pair's pages, of which there are copies
    for all; then a child each, which ksmd does not know of. In the end all of these
    exit."""
    areas: list[mmap.mmap] = []
    pages = pair[0].equal_pages

    def offer(node: int) -> int:
        os.sched_setaffinity(0, numa.cpus(node))
        areas.append(equal_to(pair[0]))
        return address_of(areas[0])

    with ExitStack() as stack:
        others = [
            stack.enter_context(puppet(partial(offer, node), fork_and_wait))
            for node in (0, 1)
        ]
        before = ksm.merged()
        offered = [int(other.next()) for other in others]
        ksm.merge(before + 2 * pages)
        with reading(pair[0]), reading(pair[1]):
            wait_for(ksm, pages)
            ksm.set_speed(RARELY)
            forked = [
                Forked(other.pid, int(other.next()), area)
                for other, area in zip(others, offered, strict=True)
            ]
            for one in forked:
                stack.callback(one.end_child)
            yield forked


def test_forks_have_what_their_parents_have_once_copies_are_folded(
    ksm: Ksm, small_pair: list[Tenant]
) -> None:
    """Nobody keeps a copy by forking, nor memory from who needs it."""
    pages, shared = small_pair[0].equal_pages, ksm.read("pages_shared")
    contents = equal_to(small_pair[0])[:]
    with forked_beside(ksm, small_pair) as forked:
        ksm.write("replica_percent", 0)
        wait_for(ksm, 0)
        assert ksm.read("pages_shared") == shared
        where = small_pair[0].equal_pages_nodes()
        for one in forked:
            assert one.nodes(pages) == [where, where]
            assert one.of_child(pages) == contents
    # By now ksmd has found that who exited is gone, and all counts agree
    merge(ksm, small_pair)
    model.check_intact(small_pair)


def test_who_is_left_has_no_copies_though_nobody_looks(
    ksm: Ksm, small_pair: list[Tenant]
) -> None:
    """What was a copy is the last page with its content."""
    with reading(small_pair[0]), reading(small_pair[1]):
        wait_for(ksm, small_pair[0].equal_pages)
        ksm.write("look_cpu_permille", 1)  # hardly: there is a minute between two
    small_pair[0].quit()
    ksm.wait_scans(2)
    ksm.write("look_cpu_permille", 0)
    wait_for(ksm, 0)
    model.check_intact(small_pair[1:])


@pytest.mark.slow
@pytest.mark.parametrize(("sharers", "areas"), [(1, 20_000), (70, 64)])
def test_who_is_long_to_find_keeps_no_copies(
    ksm: Ksm, start: StartTenant, sharers: int, areas: int
) -> None:
    """Folding takes going through all areas where a copy's mappings could be: of one
    who has more than others, or of many who have few each."""
    first = start("first", 0, mib=1, equal=20, private=80)
    others = [
        start(f"other-{n}", 1, mib=1, equal=20, private=80) for n in range(sharers)
    ]
    for other in others:
        other.command(f"stack {areas}")
    merge(ksm, [first, *others])
    with reading(first), reading(others[0]):
        wait_for(ksm, first.equal_pages)
        assert all(other.share_on(1) == 1 for other in others)
        ksm.write("replica_percent", 0)
        wait_for(ksm, 0)
    ksm.scan_once()
    model.check_intact([first, *others])


@pytest.mark.slow
@pytest.mark.parametrize("has_room", [False, True])
def test_who_is_dear_and_cannot_leave_keeps_no_copies(
    ksm: Ksm, start: StartTenant, has_room: bool
) -> None:
    """There are many areas where his mappings could be. His cgroup has no room for
    pages of his own, or he has always a new child that ksmd does not know of."""
    stress.account_memory()
    cgroup = stress.Cgroup("dear")
    pair = [start(f"pair-{node}", node, mib=1, equal=1, private=99) for node in (0, 1)]
    contents = equal_to(pair[0])[: mmap.PAGESIZE] * MAPPINGS
    areas: list[mmap.mmap] = []

    def offer() -> None:
        stress.put(cgroup.path / "cgroup.procs", os.getpid())
        os.sched_setaffinity(0, numa.cpus(1))
        areas.append(offered(contents, MANY_AREAS))

    def always_have_a_new_one() -> None:
        older = fork_and_wait()
        while True:
            newer = fork_and_wait()
            os.kill(older, signal.SIGKILL)
            os.waitpid(older, 0)
            older = newer

    try:
        merge(ksm, pair)
        with (
            puppet(offer, always_have_a_new_one) as dear,
            reading(pair[0]),
            reading(pair[1]),
        ):
            wait_for(ksm, pair[0].equal_pages)
            before = ksm.merged()
            dear.next()
            ksm.merge(before + MAPPINGS)
            ksm.set_speed(RARELY)
            if has_room:
                dear.begin()
            else:
                cgroup.settle()
                cgroup.leave(0)
            ksm.write("replica_percent", 0)
            wait_for(ksm, 0)
    finally:
        cgroup.end()
    model.check_intact(pair)


@pytest.mark.slow
@pytest.mark.parametrize("stacked", [100, MANY_AREAS])
def test_what_is_dear_and_idle_goes_in_time(
    ksm: Ksm, start: StartTenant, stacked: int
) -> None:
    """Each look asks for it, but only now and then through all of its areas, or with
    pages of its own. A child that ksmd does not know of keeps its parent from leaving
    before."""
    pair = [start(f"pair-{node}", node, mib=1, equal=1, private=99) for node in (0, 1)]
    contents = equal_to(pair[0])[: mmap.PAGESIZE] * MAPPINGS
    areas: list[mmap.mmap] = []

    def offer() -> int:
        os.sched_setaffinity(0, numa.cpus(1))
        areas.append(offered(contents, stacked))
        return address_of(areas[0])

    merge(ksm, pair)
    with ExitStack() as stack:
        dear = stack.enter_context(puppet(offer, fork_and_wait))
        with reading(pair[0]), reading(pair[1]):
            wait_for(ksm, pair[0].equal_pages)
            before = ksm.merged()
            first = int(dear.next())
            ksm.merge(before + MAPPINGS)
            ksm.set_speed(RARELY)
            at = int(pair[1].facts["equal_at"], 16)
            [near] = set(model.frames(pair[1].pid, at, 1))
            assert set(model.frames(dear.pid, first, MAPPINGS)) == {near}
            stack.callback(os.kill, int(dear.next()), signal.SIGKILL)
        wait_for(ksm, 0)
    model.check_intact(pair)


def test_a_family_that_forks_all_the_time_keeps_no_copies(
    ksm: Ksm, start: StartTenant
) -> None:
    """It has the lock of its areas most of the time, and a child that ksmd does not
    know of: folding tries for it until it has it."""
    pair = [start(f"pair-{node}", node, mib=1, equal=25, private=75) for node in (0, 1)]
    pages = pair[0].equal_pages

    merge(ksm, pair)
    with ExitStack() as stack:
        forking = stack.enter_context(
            family(pair[0], 1, areas=FORKED_AREAS, forkers=FORKERS)
        )
        with reading(pair[0]), reading(pair[1]):
            wait_for(ksm, pages)
            before = ksm.merged()
            forking.next()
            ksm.merge(before + pages)
            ksm.set_speed(RARELY)
            stack.callback(os.killpg, int(forking.next()), signal.SIGKILL)
        ksm.write("replica_percent", 0)
        wait_for(ksm, 0)
    model.check_intact(pair)


def test_who_leaves_a_full_page_lets_the_others_be_one_again(
    ksm: Ksm, start: StartTenant
) -> None:
    """A copy that no other page has room for is none, as long as that is so."""
    ksm.write("max_page_sharing", 3)
    try:
        tenants = [start(f"vm-{n}", n % 2, mib=MIB) for n in range(3)]
        merge(ksm, tenants)
        with reading(tenants[0]), reading(tenants[1]):
            wait_for(ksm, PAGES)
            late = start("late", 0, mib=MIB)
            merge(ksm, [*tenants, late])
            wait_for(ksm, 0)
            assert ksm.read("pages_shared") == 2 * PAGES
            late.quit()
            wait_for(ksm, PAGES)
        wait_for(ksm, 0)
        assert ksm.read("pages_shared") == PAGES
        model.check_intact(tenants)
    finally:
        ksm.unmerge()
        ksm.write("max_page_sharing", 256)


@pytest.mark.slow
@pytest.mark.usefixtures("wide_watermarks")
def test_there_are_none_where_memory_is_short(
    ksm: Ksm, start: StartTenant, pair: list[Tenant]
) -> None:
    with reading(pair[0]), reading(pair[1]):
        wait_for(ksm, PAGES)
        # Or kswapd takes files instead
        stress.put(Path("/proc/sys/vm/drop_caches"), 1)
        fillers = [
            filler for node in ksm.replicas() for filler in overfill(start, node)
        ]
        wait_for(ksm, 0)
        for _ in range(SOON):
            look(ksm)
        assert count(ksm) == 0
        model.check_intact([*pair, *fillers])
