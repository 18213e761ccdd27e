# SPDX-License-Identifier: GPL-2.0-only
"""Where a page belongs follows from who shares it now: what kept it from being asked,
or from being moved, keeps it for a while only.
"""

import mmap
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nuksmlab import domains, numa, policy, processes, stress, wait
from nuksmlab.area import equal_to, held_by_a_pipe, offered
from nuksmlab.fuzz import model
from nuksmlab.ksm import FAST, Ksm, process_stat
from nuksmlab.looks import SOON, look, look_until_seen, reading
from nuksmlab.replicas import count
from nuksmlab.shares import check, keep_merging
from nuksmlab.tenant import Spec, StartTenant, Tenant, lend

MIB = 8
NODES = 2
# More than are asked each time that one joins.
CROWD = 70
SCANS = 3
# Scans after which a page that cannot be moved is left to those who are where it is.
MOST_VAIN = 3
# ksmd does nothing for now, and looks go on.
RESTING = {"sleep_millisecs": 600_000}
# Of a huge page that is split: to go through them takes that much longer.
SPLIT_AREAS = 20_000
# Of all sharers of a page; who has more than his part gets a page of his own.
MOST_AREAS = 4096
# Pages of one content that are looked at.
MOST_DUPS = 64

pytestmark = pytest.mark.needs(nodes=2)


def test_who_holds_pages_while_others_join_keeps_none(
    ksm: Ksm, start: StartTenant, tmp_path: Path
) -> None:
    """In a pipe, which takes 1 MiB of them, for a scan."""
    first = [start("vm-0", 0, mib=1), start("vm-1", 0, mib=1)]
    keep_merging(ksm, first)
    refused = ksm.read("migrate_refused")
    pipe = lend(first[0], tmp_path / "pipe")
    ksm.stop()
    last = start("vm-2", 1, mib=1)
    try:
        while ksm.read("migrate_refused") == refused:
            ksm.scan_once()
    finally:
        os.close(pipe)
    ksm.set_speed(FAST)
    ksm.wait_scans(SCANS)
    check(last, [1 / 2, 1 / 2])
    assert all(tenant.bad_pages() == 0 for tenant in [*first, last])


def test_who_holds_pages_for_long_keeps_them_from_nobody(
    ksm: Ksm, start: StartTenant, tmp_path: Path
) -> None:
    """The others share pages of their own, where they are."""
    first = [start("vm-0", 0, mib=1), start("vm-1", 0, mib=1)]
    keep_merging(ksm, first)
    pipe = lend(first[0], tmp_path / "pipe")
    last = [start("vm-2", 1, mib=1), start("vm-3", 1, mib=1)]
    try:
        ksm.set_speed(FAST)
        ksm.wait_scans(MOST_VAIN + 4)
        for tenant in last:
            check(tenant, [1 / 2, 1 / 2])
            merged = process_stat(tenant.pid)["ksm_merging_pages"]
            assert merged == tenant.equal_pages
        assert first[0].equal_pages_by_node() == {0: first[0].equal_pages}
    finally:
        os.close(pipe)
    assert all(tenant.bad_pages() == 0 for tenant in [*first, *last])


@contextmanager
def held_by_turns(
    ksm: Ksm, start: StartTenant, payer: Tenant, pipes: Path, **shares: int
) -> Iterator[tuple[list[Tenant], Callable[[], None]]]:
    """Holders, of whom the last holds nothing yet, and what to call for a turn.

    In it the last one has the pages of all follow him, and holds them for long. They
    have the same `shares` of their memory equal, or private, as the payer.
    """
    ksm.write("look_cpu_permille", 1000)
    ksm.set_speed(FAST)
    pages = payer.equal_pages
    holders = [start("holder-0", 0, mib=1, **shares)]
    with ExitStack() as held:

        def turn() -> None:
            number = len(holders)
            ksm.merge((number + 1) * pages)
            with reading(payer):
                with reading(holders[-1]):
                    look_until_seen(ksm, SOON, 2 * pages)
                held.callback(os.close, lend(holders[-1], pipes / f"pipe-{number}"))
                for _ in range(2 * SOON):
                    look(ksm)
                ksm.wait_scans(MOST_VAIN + 4)
            holders.append(start(f"holder-{number}", 0, mib=1, **shares))

        yield holders, turn


@pytest.mark.slow
def test_pages_are_not_given_up_without_end(
    ksm: Ksm, start: StartTenant, tmp_path: Path
) -> None:
    """By one after the other, who go on having them: whoever paid for them pays on."""
    payer = start("payer", 1, mib=1)
    unshared = []
    with held_by_turns(ksm, start, payer, tmp_path) as (holders, turn):
        for _ in range(NODES + 2):
            turn()
            unshared.append(ksm.read("migrate_unshared"))
    assert unshared[0] > 0
    assert unshared[NODES - 1 :] == [unshared[NODES - 1]] * 3
    assert all(tenant.bad_pages() == 0 for tenant in [*holders, payer])


@pytest.mark.slow
def test_what_is_held_of_another_domain_keeps_no_page(
    ksm: Ksm, start: StartTenant, tmp_path: Path
) -> None:
    """Of half of the contents as many pages are, there, as there are nodes."""
    ksm.write("kib_per_tree", 0)  # or other domains' pages are in other trees
    (pipes := tmp_path / "other").mkdir()
    payer = start("payer", 1, mib=1)
    with held_by_turns(ksm, start, payer, tmp_path) as (holders, turn):
        for _ in range(NODES):
            turn()
        for tenant in [payer, *holders]:
            tenant.quit()
        with domains.group("other") as group:
            group.give("own")

            def start_there(name: str, node: int, mib: int) -> Tenant:
                return Tenant(Spec(f"other-{name}", node, mib), group.prefix())

            pays = start_there("payer", 1, mib=1)
            with held_by_turns(ksm, start_there, pays, pipes) as (hold, turn_there):
                turn_there()
                unshared = ksm.read("migrate_unshared")
                # They are filed beside the other domain's by now
                turn_there()
            given_up = ksm.read("migrate_unshared") - unshared
            share, pages = given_up / pays.equal_pages, pays.equal_pages
            assert policy.off_by_more_than_chance([share], [1 / 2], pages) is None
            assert all(tenant.bad_pages() == 0 for tenant in [*hold, pays])


@contextmanager
def left_behind(ksm: Ksm, payer: Tenant) -> Iterator[None]:
    """Of each of the payer's contents many pages that all have left, but a pipe has.

    Those that the payer shares with one more are full meanwhile.
    """
    once = equal_to(payer)
    contents, sharers = once[:], ksm.read("max_page_sharing")
    once.close()
    full = offered((sharers - 2) * contents)
    ksm.wait_scans(4)
    area = offered((MOST_DUPS + 2) * sharers * contents)
    ksm.wait_scans(4)
    with held_by_a_pipe(area, len(area) // mmap.PAGESIZE):
        area.madvise(mmap.MADV_DONTNEED)
        ksm.wait_scans(2)
        yield
    area.close()
    full.close()


@pytest.mark.slow
def test_what_is_held_and_left_hides_no_pages_that_were_given_up(
    ksm: Ksm, start: StartTenant, tmp_path: Path
) -> None:
    """It is filed in front of them, if what others share is full."""
    few = {"equal": 4, "private": 96}
    before = ksm.read("max_page_sharing")
    ksm.write("max_page_sharing", 2 * (NODES + 2))
    try:
        payer = start("payer", 1, mib=1, **few)
        with held_by_turns(ksm, start, payer, tmp_path, **few) as (holders, turn):
            for _ in range(NODES):
                turn()
            ksm.merge((NODES + 2) * payer.equal_pages)
            given_up = ksm.read("migrate_unshared")
            assert given_up > 0
            with left_behind(ksm, payer):
                assert ksm.read("stable_node_dups") > MOST_DUPS
                turn()
            assert ksm.read("migrate_unshared") == given_up
        assert all(tenant.bad_pages() == 0 for tenant in [*holders, payer])
    finally:
        ksm.unmerge()
        ksm.write("max_page_sharing", before)


@pytest.mark.slow
def test_pages_that_were_given_up_keep_no_copies_from_others_for_good(
    ksm: Ksm, start: StartTenant, tmp_path: Path
) -> None:
    """But as long as they are held: whoever paid for them might pay again."""
    ksm.write("replica_percent", 0)
    payer = start("payer", 1, mib=1)
    with held_by_turns(ksm, start, payer, tmp_path) as (holders, turn):
        for _ in range(NODES):
            turn()
        ksm.merge((NODES + 2) * payer.equal_pages)
        ksm.write("replica_percent", 100)
        with reading(payer), reading(holders[-1]):
            look_until_seen(ksm, 2 * SOON, 2 * payer.equal_pages)
        # Others belong where they were held, and were not given up
        copies = count(ksm)
    missing = payer.equal_pages - copies
    assert missing > 0
    with reading(payer), reading(holders[-1]):
        wait.until(
            lambda: count(ksm) >= copies + missing / 2,
            lambda: f"half of {missing} copies more than {copies}; {ksm.replicas()}",
        )
    assert all(tenant.bad_pages() == 0 for tenant in [*holders, payer])


@pytest.mark.slow
def test_who_moves_has_no_pages_that_were_given_up_elsewhere(
    ksm: Ksm, start: StartTenant, tmp_path: Path
) -> None:
    """They were held for long where he was, and nobody asks where they belong."""
    ksm.write("look_cpu_permille", 1000)
    with numa.running_on(0):
        holder, moves = (start(f"vm-{number}", mib=1) for number in range(2))
    keep_merging(ksm, [holder, moves])
    pipe = lend(holder, tmp_path / "pipe")
    others = [start("vm-2", 1, mib=1), start("vm-3", 1, mib=1)]
    try:
        ksm.set_speed(FAST)
        ksm.wait_scans(MOST_VAIN + 4)
        for tenant in others:
            check(tenant, [1 / 2, 1 / 2])
        assert moves.share_on(0) == 1
    finally:
        os.close(pipe)
    os.sched_setaffinity(moves.pid, numa.cpus(1))
    with reading(moves):
        look_until_seen(ksm, 2 * SOON, moves.equal_pages)
        ksm.wait_scans(SCANS)
        assert moves.share_on(1) >= 0.99
    assert all(tenant.bad_pages() == 0 for tenant in [holder, moves, *others])


def test_who_has_no_room_for_pages_of_his_own_gets_them_later(
    ksm: Ksm, start: StartTenant, tmp_path: Path
) -> None:
    """Pages that were given up are tried again, while his cgroup is full."""
    first = start("vm-0", 0, mib=1)
    keep_merging(ksm, [first, start("vm-1", 0, mib=1)])
    pipe = lend(first, tmp_path / "pipe")
    ksm.stop()
    last = start("vm-2", 1, mib=1)
    cgroup = stress.Cgroup("full")
    try:
        cgroup.limit(0)
        stress.put(cgroup.path / "cgroup.procs", last.pid)
        for _ in range(MOST_VAIN + 4):
            ksm.scan_once()
        assert last.equal_pages_by_node() == {0: last.equal_pages}
        cgroup.limit(None)
        for _ in "12":
            ksm.scan_once()
        check(last, [1 / 2, 1 / 2])
        assert last.bad_pages() == 0
    finally:
        os.close(pipe)
        stress.put(stress.CGROUPS / "cgroup.procs", last.pid)
        cgroup.end()


@pytest.mark.slow
@pytest.mark.parametrize("areas", [2_000, 20_000])
@pytest.mark.parametrize("placement", ["fair", "priority"])
def test_who_is_long_to_find_keeps_no_pages(
    ksm: Ksm, start: StartTenant, placement: str, areas: int
) -> None:
    """Moving a page takes going through all areas where its mappings could be."""
    ksm.write_text("placement", placement)
    first = [start("vm-0", 0, mib=MIB), start("vm-1", 0, mib=MIB)]
    first[0].command(f"stack {areas}")
    keep_merging(ksm, first)
    before = ksm.read("migrate_unshared")
    last = start("vm-2", 1, mib=MIB)
    keep_merging(ksm, [*first, last])
    ksm.wait_scans(SCANS)
    weight = 1 / 2 if placement == "fair" else 2 / 3
    check(last, [weight, 1 - weight])
    assert (ksm.read("migrate_unshared") > before) == (areas > MOST_AREAS)
    assert all(tenant.bad_pages() == 0 for tenant in [*first, last])


@pytest.mark.slow
def test_pages_do_not_go_to_who_is_too_long_to_find(
    ksm: Ksm, start: StartTenant
) -> None:
    """He gets pages of his own: nobody would have those near. But for the last one,
    which is not stacked, and goes where it is drawn."""
    ksm.write("look_cpu_permille", 0)
    ksm.write("smart_scan", 0)  # he joins again in the next scan but one
    first = [start("vm-0", 0, mib=1), start("vm-1", 0, mib=1)]
    keep_merging(ksm, first)
    ksm.stop()  # he joins when he is too long to find
    last = start("vm-2", 1, mib=1)
    last.command(f"stack {MOST_AREAS + 1}")
    all_but_one = 1 - 1 / first[0].equal_pages
    for _ in range(2 * SCANS):
        ksm.scan_once()
        assert min(tenant.share_on(0) for tenant in first) >= all_but_one
    assert ksm.read("migrate_unshared") > 0
    model.check_intact([*first, last])


@pytest.fixture
def twins(ksm: Ksm, start: StartTenant) -> Iterator[list[Tenant]]:
    """Two on different nodes, merged; what is in them has to last."""
    twins = [start(f"vm-{node}", node, mib=MIB) for node in (1, 0)]
    keep_merging(ksm, twins)
    yield twins
    model.check_intact(twin for twin in twins if twin.process.poll() is None)


@pytest.mark.slow
def test_many_who_are_easy_to_find_share_pages_that_move(
    ksm: Ksm, start: StartTenant
) -> None:
    """A page is in more areas than are gone through for others, but nobody has many."""
    first = [start(f"vm-{n}", 0, mib=1, equal=20, private=80) for n in range(70)]
    for tenant in first:
        tenant.command("stack 63")
    keep_merging(ksm, first)
    before = ksm.read("migrate_unshared")
    last = start("last", 1, mib=1, equal=20, private=80)
    keep_merging(ksm, [*first, last])
    ksm.wait_scans(SCANS)
    assert last.share_on(1) > 0
    assert ksm.read("migrate_unshared") == before
    model.check_intact([*first, last])


@contextmanager
def lock_of_areas(
    ksm: Ksm, first: Tenant, last: Tenant
) -> Iterator[Callable[[], None]]:
    """A child splits huge pages, and hardly gets a CPU: it has its parent's lock.

    From when the test says so; ksmd rests.
    """
    child = first.command(f"split {SPLIT_AREAS}")["child"]
    ksm.wait_scans(SCANS)  # ksmd has seen that it has nothing to merge
    ksm.write("look_cpu_permille", 1000)
    ksm.set_speed(RESTING)

    def begin() -> None:
        before = ksm.read("migrate_refused")
        first.command("split begin")
        for _ in range(3):
            for user in (last, first):  # so that pages are to be moved
                with reading(user):
                    for _ in range(SOON):
                        look(ksm)
                        if ksm.read("migrate_refused") > before:
                            return
        pytest.skip("the child has no huge page to split")

    try:
        yield begin
    finally:
        os.kill(child, signal.SIGKILL)  # its parent could not end before


def nobody_waits(ksm: Ksm) -> None:
    """Neither ksmd, nor who writes to sysfs."""
    ksm.set_speed(FAST)
    ksm.wait_scans(SCANS)
    ksm.stop()


def is_waiting(task: Path) -> bool:
    """For a lock, and not to be ended meanwhile."""
    return ") D " in (task / "stat").read_text()


@pytest.mark.slow
def test_who_has_the_lock_of_areas_stops_nobody(ksm: Ksm, twins: list[Tenant]) -> None:
    """Where pages are to be moved, or taken apart as they cannot be."""
    first, last = twins
    with lock_of_areas(ksm, first, last) as begin:
        begin()
        nobody_waits(ksm)


def test_who_has_the_lock_of_a_huge_page_stops_nobody(
    ksm: Ksm, twins: list[Tenant]
) -> None:
    """It is to be split, to be merged."""
    first, last = twins
    with lock_of_areas(ksm, first, last) as begin:
        if not first.command("split collapse")["huge"]:
            pytest.skip("the parent has no huge page")
        begin()
        nobody_waits(ksm)


@pytest.mark.slow
def test_who_has_the_lock_of_who_ended_stops_nobody(
    ksm: Ksm, twins: list[Tenant]
) -> None:
    """A fork has ended: what is left of its areas goes with its last merged page."""
    first, last = twins
    fork = first.command("split stay")["child"]
    ksm.wait_scans(SCANS)
    assert process_stat(fork)["ksm_merging_pages"] == first.equal_pages
    with lock_of_areas(ksm, first, last) as begin:
        os.kill(fork, signal.SIGKILL)
        stat = Path(f"/proc/{fork}/stat")
        wait.until(lambda: ") Z " in stat.read_text(), stat.read_text)
        begin()
        nobody_waits(ksm)


def rewrite(tenant: Tenant) -> None:
    tenant.command(f"write {tenant.equal_pages}")
    tenant.command("restore")


@pytest.mark.slow
@pytest.mark.parametrize("leave", [rewrite, Tenant.quit])
def test_who_has_a_page_locked_stops_nobody(
    ksm: Ksm, twins: list[Tenant], leave: Callable[[Tenant], None]
) -> None:
    """Who moves it waits for the lock of areas; another one shares it no more.

    What was kept for that is given back when the page is no longer locked.
    """
    first, last = twins
    with lock_of_areas(ksm, first, last) as begin:
        begin()
        starts = [int(twin.facts["equal_at"], 16) for twin in twins]
        first_has, last_has = (
            model.frames(twin.pid, start, twin.equal_pages)
            for twin, start in zip(twins, starts, strict=True)
        )
        shared = [a == b for a, b in zip(first_has, last_has, strict=True)].index(True)
        node = first.equal_pages_nodes()[shared]
        leave(last)
        mover = threading.Thread(
            target=stress.move_page,
            args=(first.pid, starts[0] + shared * model.PAGE, 1 - node),
        )
        mover.start()
        task = Path(f"/proc/self/task/{mover.native_id}")
        stack = task / "stack"
        wait.until(lambda: "rmap_walk_ksm" in stack.read_text(), stack.read_text)
        nobody_waits(ksm)
    mover.join()
    ksm.start()
    ksm.wait_scans(SCANS)
    ksm.stop()
    stay = [tenant.pid for tenant in twins if tenant.process.poll() is None]
    have = sum(process_stat(pid)["ksm_merging_pages"] for pid in stay)
    assert ksm.merged() == have


@pytest.mark.slow
def test_who_keeps_his_mmap_lock_stops_no_looks(ksm: Ksm, twins: list[Tenant]) -> None:
    """He waits for the lock of areas, too; ksmd waits for him, but others do not."""
    first, last = twins
    ksmd = Path(f"/proc/{processes.pid_of('ksmd')}")
    with lock_of_areas(ksm, first, last) as begin:
        begin()
        first.send(f"stack {MOST_AREAS}")  # each takes both locks
        ksm.set_speed(FAST)
        for _ in range(SOON):
            wait.until(
                lambda: is_waiting(ksmd) or first.has_answered(),
                lambda: "ksmd waits for nobody",
            )
            if first.has_answered():
                pytest.skip("the child let go of the lock")
            look(ksm)
        ksm.stop()
    first.receive()


@pytest.mark.parametrize("placement", ["fair", "priority"])
def test_the_last_of_many_is_asked_for(
    ksm: Ksm, start: StartTenant, placement: str
) -> None:
    ksm.write_text("placement", placement)
    crowd = [start(f"vm-{number}", 0, mib=1) for number in range(CROWD)]
    for tenant in crowd:
        tenant.renice(19)
    keep_merging(ksm, crowd)
    last = start("last", 1, mib=1)
    last.renice(-20)
    keep_merging(ksm, [*crowd, last])
    ksm.wait_scans(SCANS)
    nodes, nices = [0] * CROWD + [1], [19] * CROWD + [-20]
    check(last, policy.target(placement, nodes, nices))


def test_who_leaves_leaves_pages_to_those_who_stay(
    ksm: Ksm, start: StartTenant
) -> None:
    """None of them stays where nobody shares it any more."""
    tenants = [
        start(f"vm-{number}", node, mib=MIB) for number, node in enumerate((0, 0, 1))
    ]
    keep_merging(ksm, tenants)
    check(tenants[0], [1 / 2, 1 / 2])
    tenants.pop().quit()
    ksm.wait_scans(SCANS)
    assert tenants[0].equal_pages_by_node() == {0: tenants[0].equal_pages}


@pytest.mark.needs(nodes=4)
@pytest.mark.parametrize(
    ("attacker", "victim"), [(1, 0), (2, 0), (1, 3), (3, 0), (0, 3)]
)
def test_an_accomplice_elsewhere_helps_nobody(
    ksm: Ksm, start: StartTenant, attacker: int, victim: int
) -> None:
    """It shares what is not on the attacker's node, on each other node, and leaves."""
    two = [start("attacker", attacker, mib=MIB), start("victim", victim, mib=MIB)]
    keep_merging(ksm, two)
    before = two[0].equal_pages_nodes()
    for node in set(range(4)) - {attacker, victim}:
        decoy = start("decoy", node, mib=MIB)
        keep_merging(ksm, [*two, decoy])
        now = two[0].equal_pages_nodes()
        moved = {(was, is_) for was, is_ in zip(before, now, strict=True) if was != is_}
        assert {is_ for _, is_ in moved} == {node}, "pages went to somebody else"
        decoy.quit()
        ksm.wait_scans(SCANS)
        assert two[0].equal_pages_nodes() == before


def test_counters_of_single_pages_are_for_root(ksm: Ksm) -> None:
    """Who sees which contents collide can work out the seed of checksums."""
    seen = {path.name for path in ksm.root.iterdir() if path.stat().st_mode & 0o044}
    secret = {
        *("checksum_compares", "content_compares", "compared_bytes", "collisions"),
        *("replaced", "placed_hot", "placed_spread", "placed_priority"),
        *("placed_no_room", "migrated", "migrate_refused"),
    }
    assert secret & seen == set()
