# SPDX-License-Identifier: GPL-2.0-only
"""Looks at merged pages: these follow who uses them, and stay where nobody does."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nuksmlab import numa, policy, stress, wait
from nuksmlab.fuzz import model
from nuksmlab.ksm import FAST, Ksm, process_stat
from nuksmlab.looks import (
    SOON,
    look,
    look_until_seen,
    reading,
    readings,
    use_alike,
    use_now_and_then,
)
from nuksmlab.shares import check, merge
from nuksmlab.tenant import StartTenant, Tenant, fill_node, lend

pytestmark = pytest.mark.needs(nodes=2)

MIB = 2
PAGES = MIB * 256
# Looks of which two ask of a page that could not be moved whether it is to be, as both
# have to say so: of one page in 70, fewer do.
TRIED_WITHIN = 48
# Of 10,000 pages, so many and twice as many: what is kept free.
WATERMARKS = Path("/proc/sys/vm/watermark_scale_factor")


def merged_on(node: int, ksm: Ksm, start: StartTenant) -> list[Tenant]:
    """Two, merged, that began on a node, and may go elsewhere."""
    with numa.running_on(node):
        tenants = [start(f"vm-{number}", mib=MIB) for number in range(2)]
    merge(ksm, tenants)
    return tenants


@contextmanager
def near_and_held(ksm: Ksm, holder: Tenant, path: Path) -> Iterator[None]:
    """His pages are near him, who used them, and then he holds them in a pipe."""
    with reading(holder):
        look_until_seen(ksm, SOON, holder.equal_pages)
    pipe = lend(holder, path)
    yield
    os.close(pipe)


def mover_from(node: int, ksm: Ksm, start: StartTenant) -> tuple[Tenant, Tenant]:
    """One that may go to the other node, and one that stays there; ksmd rests then."""
    with numa.running_on(node):
        mover = start("mover", mib=MIB)
    other = start("other", 1 - node, mib=MIB)
    merge(ksm, [mover, other])
    ksm.write("pages_to_scan", 0)
    return mover, other


def mover_with_copies(node: int, ksm: Ksm, start: StartTenant) -> tuple[Tenant, Tenant]:
    """As mover_from(); each page is near for both, who have used it."""
    mover, other = mover_from(node, ksm, start)
    ksm.write("replica_percent", 100)
    with reading(mover), reading(other):
        look_until_seen(ksm, 2 * SOON, 2 * PAGES)
    return mover, other


@contextmanager
def full(start: StartTenant, node: int) -> Iterator[None]:
    """A node whose free pages are kept for others, until it has very many."""
    fill_node(start, node, 0)
    before = WATERMARKS.read_text()
    stress.put(WATERMARKS, 1000)
    yield
    stress.put(WATERMARKS, before)


@pytest.fixture(autouse=True)
def often(ksm: Ksm) -> None:
    """A look each second, whatever it takes here."""
    ksm.write("look_cpu_permille", 1000)


def test_pages_follow_who_uses_them(ksm: Ksm, pair: list[Tenant]) -> None:
    for user in (1, 0):
        with reading(pair[user]):
            look_until_seen(ksm, SOON, PAGES)
        assert pair[user].share_on(user) >= 0.99
    model.check_intact(pair)


def test_pages_follow_a_newcomer_that_uses_them(ksm: Ksm, start: StartTenant) -> None:
    cold = [start(f"cold-{number}", 0, mib=MIB) for number in range(2)]
    merge(ksm, cold)
    hot = start("hot", 1, mib=MIB)
    with reading(hot):
        merge(ksm, [*cold, hot])
        look_until_seen(ksm, SOON, PAGES)
    assert hot.share_on(1) >= 0.99
    model.check_intact([*cold, hot])


def test_pages_that_both_use_are_shared_as_the_policy_says(
    ksm: Ksm, pair: list[Tenant]
) -> None:
    with reading(pair[1]):
        look_until_seen(ksm, SOON, PAGES)
    with reading(pair[0]), reading(pair[1]):
        look_until_seen(ksm, SOON, PAGES)
    check(pair[0], [1 / 2, 1 / 2])


@pytest.mark.slow
def test_who_moves_to_a_full_node_keeps_what_he_has_there(
    ksm: Ksm, start: StartTenant
) -> None:
    """For that there need not be room; what is elsewhere stays there."""
    mover, other = mover_from(0, ksm, start)
    check(mover, [1 / 2, 1 / 2])
    before = mover.share_on(1)
    with full(start, 1):
        os.sched_setaffinity(mover.pid, numa.cpus(1))
        with reading(mover):
            look_until_seen(ksm, 2 * SOON, PAGES)
        assert mover.share_on(1) >= before
    model.check_intact([mover, other])


@pytest.mark.slow
def test_nothing_moves_while_nothing_changes(ksm: Ksm, pair: list[Tenant]) -> None:
    with reading(pair[1]):
        look_until_seen(ksm, SOON, PAGES)
        moved = ksm.read("migrated")
        for _ in range(SOON):
            look(ksm)
        assert ksm.read("migrated") == moved
    for _ in range(SOON):
        look(ksm)
    assert ksm.read("migrated") == moved, "nobody uses them where they are not"
    assert pair[1].share_on(1) >= 0.99


@pytest.mark.slow
def test_no_page_moves_for_who_begins_and_stops_together(
    ksm: Ksm, start: StartTenant
) -> None:
    """Looks come to one of them first."""
    together = False
    while not together:  # a slow machine runs one of them, and then the other
        tenants = [start(f"vm-{node}", node, mib=MIB) for node in (0, 1)]
        merge(ksm, tenants)
        before = ksm.read("migrated"), tenants[0].share_on(0)
        with reading(tenants[0]), reading(tenants[1]):
            seen = [look(ksm) for _ in range(SOON)]
        seen += [look(ksm) for _ in range(SOON)]
        together = all(used == 0 or used >= 0.9 * 2 * PAGES for used in seen)
        after = ksm.read("migrated"), tenants[0].share_on(0)
        model.check_intact(tenants)
        for tenant in tenants:
            tenant.quit()
    assert after == before


@pytest.mark.slow
def test_pages_stay_near_who_uses_them_now_and_then(
    ksm: Ksm, pair: list[Tenant]
) -> None:
    """He is not hot, and the other one is: chance may have looks see it so, too."""
    before = ksm.read("migrated")
    with reading(pair[0]):
        use_now_and_then(ksm, pair[1], 2 * PAGES)
        assert ksm.read("migrated") == before
        look_until_seen(ksm, SOON, PAGES)
    assert pair[0].share_on(0) >= 0.99
    model.check_intact(pair)


@pytest.mark.slow
def test_who_uses_pages_now_and_then_has_his_part_of_them(
    ksm: Ksm, pair: list[Tenant]
) -> None:
    """He had them all."""
    with reading(pair[0]):
        look_until_seen(ksm, SOON, PAGES)
    for _ in range(SOON):
        look(ksm)
    with reading(pair[1]):
        use_now_and_then(ksm, pair[0], 2 * PAGES)
    check(pair[0], [1 / 2, 1 / 2])
    model.check_intact(pair)


@pytest.mark.slow
def test_who_is_not_hot_has_his_part_of_pages_that_both_use_alike(
    ksm: Ksm, pair: list[Tenant]
) -> None:
    """The other one is, and uses them no more often than he by now."""
    with reading(pair[0]):
        look_until_seen(ksm, SOON, PAGES)
    use_alike(ksm, 2 * SOON, pair[1], pair[0])
    check(pair[0], [1 / 2, 1 / 2])
    model.check_intact(pair)


@pytest.mark.slow
def test_who_holds_pages_keeps_them_from_nobody_who_uses_them_alike(
    ksm: Ksm, small_pair: list[Tenant], tmp_path: Path
) -> None:
    """They cannot be moved, so the other one gets his part of them for himself."""
    holder, other = small_pair
    with near_and_held(ksm, holder, tmp_path / "pipe"):
        use_alike(ksm, 3 * SOON, other, holder)
        check(other, [1 / 2, 1 / 2])
    model.check_intact(small_pair)


@pytest.mark.slow
def test_who_holds_pages_keeps_them_no_longer_by_using_them_more_for_once(
    ksm: Ksm, small_pair: list[Tenant], tmp_path: Path
) -> None:
    """In one scan; in two before it, and in two after it, both use them alike."""
    holder, other = small_pair
    ksm.scan_once()
    with near_and_held(ksm, holder, tmp_path / "pipe"):
        for scans in (2, 1, 2):
            if scans == 1:
                with reading(holder):
                    look_until_seen(ksm, SOON, holder.equal_pages)
            else:
                use_alike(ksm, 2 * SOON, other, holder)
            for _ in range(scans):
                ksm.scan_once()
        check(other, [1 / 2, 1 / 2])
    model.check_intact(small_pair)


@pytest.mark.slow
@pytest.mark.parametrize("rested", [0, SOON])
def test_looks_try_again_what_somebody_held(
    ksm: Ksm, small_pair: list[Tenant], tmp_path: Path, rested: int
) -> None:
    """ksmd has not come by since. As who held it has rested, it is first used alike."""
    holder, user = small_pair
    ksm.write("pages_to_scan", 0)
    with near_and_held(ksm, holder, tmp_path / "pipe"):
        for _ in range(rested):
            look(ksm)
        with reading(user):
            look_until_seen(ksm, 2 * SOON, user.equal_pages)
        assert user.share_on(0) == 1
    with reading(user):
        look_until_seen(ksm, TRIED_WITHIN, user.equal_pages)
    assert user.share_on(1) >= 0.9
    with reading(holder):
        look_until_seen(ksm, 2 * SOON, holder.equal_pages)
    assert holder.share_on(0) >= 0.9, "what was held once, and moved, is as any other"
    model.check_intact(small_pair)


@pytest.mark.slow
@pytest.mark.parametrize("uses", [True, False])
def test_who_holds_pages_keeps_nobody_from_copies(
    ksm: Ksm, small_pair: list[Tenant], tmp_path: Path, *, uses: bool
) -> None:
    """It was tried in vain to move them; to copy them, they need not be moved. When he
    lets go, and uses them no more, each is one page again, before ksmd comes by."""
    holder, user = small_pair
    ksm.write("pages_to_scan", 0)
    with near_and_held(ksm, holder, tmp_path / "pipe"):
        with reading(user):
            look_until_seen(ksm, 2 * SOON, user.equal_pages)
        assert user.share_on(0) == 1
        ksm.write("replica_percent", 100)
        with readings(small_pair if uses else [user]):
            look_until_seen(ksm, 2 * SOON, (1 + uses) * user.equal_pages)
        assert user.share_on(1) >= 0.97
    with reading(user):
        look_until_seen(ksm, TRIED_WITHIN, user.equal_pages)
    assert ksm.read("pages_shared") <= 1.1 * user.equal_pages
    assert user.share_on(1) >= 0.97
    model.check_intact(small_pair)


@pytest.mark.slow
def test_who_holds_pages_takes_nobody_the_copies(
    ksm: Ksm, small_pair: list[Tenant], tmp_path: Path
) -> None:
    """He uses them no more: copies are not folded into what cannot follow."""
    holder, user = small_pair
    ksm.write("pages_to_scan", 0)
    ksm.write("replica_percent", 100)
    with reading(user), reading(holder):
        look_until_seen(ksm, 2 * SOON, 2 * user.equal_pages)
    assert [user.share_on(1), holder.share_on(0)] == [1, 1]
    pipe, folded = lend(holder, tmp_path / "pipe"), ksm.read("replicas_folded")
    with reading(user):
        look_until_seen(ksm, 3 * SOON, user.equal_pages)
    assert user.share_on(1) == 1
    assert ksm.read("replicas_folded") == folded
    os.close(pipe)
    model.check_intact(small_pair)


@pytest.mark.slow
def test_who_moves_to_a_full_node_shares_the_pages_there(
    ksm: Ksm, start: StartTenant
) -> None:
    """Of which he had copies: that takes no memory. Copies that are there go."""
    mover, other = mover_with_copies(1, ksm, start)
    assert mover.share_on(1) >= 0.99
    with full(start, 0):
        os.sched_setaffinity(mover.pid, numa.cpus(0))
        with reading(mover), reading(other):
            look_until_seen(ksm, 2 * SOON, 2 * PAGES)
        for tenant in (mover, other):
            check(tenant, [1 / 2, 1 / 2])
    model.check_intact([mover, other])


@pytest.mark.slow
def test_who_moves_to_where_others_have_copies_shares_these(
    ksm: Ksm, start: StartTenant
) -> None:
    """Then nobody uses his old ones, and there is one page of each again."""
    mover, other = mover_with_copies(0, ksm, start)
    assert ksm.read("pages_shared") == 2 * PAGES
    os.sched_setaffinity(mover.pid, numa.cpus(1))
    with reading(mover), reading(other):
        look_until_seen(ksm, SOON, 2 * PAGES)
    assert [tenant.share_on(1) for tenant in (mover, other)] == [1, 1]
    assert ksm.read("pages_shared") == PAGES
    model.check_intact([mover, other])


@pytest.mark.slow
def test_looks_follow_a_user_whoever_comes_and_goes(
    ksm: Ksm, start: StartTenant
) -> None:
    """One of many leaves and one comes back in each scan."""
    user = start("user", 1, mib=1)
    others = [start(f"other-{number}", 0, mib=1) for number in range(12)]
    merge(ksm, [user, *others])
    ksm.set_speed(FAST)
    for comes, leaves in zip([None, *others], others[:5], strict=False):
        if comes:
            comes.command("restore")
        leaves.command(f"write {user.equal_pages}")
        ksm.scan_once()
    with reading(user):
        look_until_seen(ksm, 2 * SOON, user.equal_pages)
        assert user.share_on(1) >= 0.9


@contextmanager
def used_now_and_then(ksm: Ksm, tenant: Tenant, pages: int) -> Iterator[None]:
    """All the time, beside what others do; see use_now_and_then()."""
    over = threading.Event()

    def use() -> None:
        while not over.is_set():
            use_now_and_then(ksm, tenant, pages)

    with ThreadPoolExecutor(1) as thread:
        user = thread.submit(use)
        try:
            yield
        finally:
            over.set()
        user.result()


@pytest.mark.slow
def test_joining_and_leaving_takes_no_pages_from_who_uses_them_now_and_then(
    ksm: Ksm, start: StartTenant, pair: list[Tenant]
) -> None:
    """ksmd asks each time. Looks have found that he has his part of them."""
    with reading(pair[1]):
        use_now_and_then(ksm, pair[0], 2 * PAGES)
        with used_now_and_then(ksm, pair[0], 2 * PAGES):
            before = pair[0].equal_pages_nodes()
            for number in range(3):
                other = start(f"other-{number}", number % 2, mib=MIB)
                merge(ksm, [*pair, other])
                assert pair[1].equal_pages_nodes() == before
                other.quit()
                ksm.wait_scans(2)
                assert pair[1].equal_pages_nodes() == before
    model.check_intact(pair)


@pytest.mark.slow
def test_who_was_not_seen_for_once_keeps_pages_that_are_seldom_used(
    ksm: Ksm, pair: list[Tenant]
) -> None:
    """By chance, while the other one was: both use them alike."""
    with reading(pair[0]), reading(pair[1]):
        look_until_seen(ksm, SOON, 2 * PAGES)
    before = ksm.read("migrated")
    for number in range(2 * SOON):
        if number % 6 == 0:  # in a third look of eight they would be used alike
            with reading(pair[1]):
                look(ksm)
        else:
            look(ksm)
    assert ksm.read("migrated") == before
    model.check_intact(pair)


@pytest.mark.usefixtures("pair")
def test_merging_is_no_use(ksm: Ksm) -> None:
    look(ksm)
    assert [look(ksm) for _ in range(3)] == [0, 0, 0]


def test_pages_follow_a_tenant_that_moves(ksm: Ksm, start: StartTenant) -> None:
    tenants = merged_on(0, ksm, start)
    assert tenants[1].share_on(0) == 1
    assert process_stat(tenants[1].pid)["ksm_merged_remote"] == 0
    os.sched_setaffinity(tenants[1].pid, numa.cpus(1))
    with reading(tenants[1]):
        look_until_seen(ksm, 2 * SOON, PAGES)
        assert tenants[1].share_on(1) >= 0.99
    assert process_stat(tenants[1].pid)["ksm_merged_remote"] <= 0.01 * PAGES
    stat = process_stat(tenants[0].pid)
    assert stat["ksm_merged_remote"] >= 0.99 * PAGES, "the other one stayed"
    model.check_intact(tenants)


def test_a_tenant_that_hardly_runs_has_moved_where_it_does(
    ksm: Ksm, start: StartTenant
) -> None:
    """No look sees it running. Nobody uses the pages: they are shared by the rule."""
    tenants = merged_on(0, ksm, start)
    os.sched_setaffinity(tenants[1].pid, numa.cpus(1))
    for _ in range(2 * SOON):  # a look may have begun before it ran
        tenants[1].command("restore")  # nothing was changed: no page is used
        look(ksm)
    found = [tenants[0].share_on(node) for node in (0, 1)]
    assert policy.off_by_more_than_chance(found, [0.5, 0.5], PAGES) is None
    model.check_intact(tenants)


def threads(pid: int) -> set[int]:
    return {int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()}


@pytest.mark.slow
def test_pages_follow_a_tenant_one_of_whose_threads_waits_elsewhere(
    ksm: Ksm, start: StartTenant
) -> None:
    """The others are seen running on their node once, and hardly run from then on."""
    tenants = merged_on(0, ksm, start)
    pid = tenants[1].pid
    tenants[1].command("wait")
    (waits,) = threads(pid) - {pid}
    os.sched_setaffinity(waits, numa.cpus(0) | numa.cpus(1))
    os.sched_setaffinity(pid, numa.cpus(1))
    with reading(tenants[1]):
        for _ in range(2):
            look(ksm)
    for _ in range(2 * SOON):
        tenants[1].command("restore")
        look(ksm)
    assert last_cpu(waits) in numa.cpus(0)
    # All of them, if looks saw it use them; or else half, by the rule
    assert tenants[1].share_on(1) >= 0.4
    model.check_intact(tenants)


def last_cpu(pid: int) -> int:
    """Of a thread, which for the first one is the process; see proc(5)."""
    fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2]
    return int(fields.split()[36])


def test_pages_stay_with_a_tenant_whose_threads_take_turns(
    ksm: Ksm, start: StartTenant
) -> None:
    """One runs all the time on a node, and another one now and then on the other."""
    apart = False
    while not apart:  # the scheduler may move the one that may run anywhere
        tenants = merged_on(0, ksm, start)
        pid = tenants[1].pid
        os.sched_setaffinity(pid, numa.cpus(0) | numa.cpus(1))
        with reading(tenants[1]):
            (reader,) = threads(pid) - {pid}
            os.sched_setaffinity(reader, numa.cpus(1))
            ran_on = set()
            for _ in range(SOON):
                tenants[1].command("touch")
                ran_on.add(last_cpu(pid))
                look(ksm)
        apart = ran_on <= numa.cpus(0)
        stays = tenants[1].share_on(0), process_stat(pid)["ksm_merged_remote"]
        for tenant in tenants:
            tenant.quit()
    assert stays == (1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("looks", [1, 3])
def test_pages_stay_with_a_tenant_whose_workers_end(
    ksm: Ksm, start: StartTenant, looks: int
) -> None:
    """Its first thread is all that looks find; a worker ends before some of them."""
    tenants = merged_on(1, ksm, start)
    pid = tenants[1].pid
    os.sched_setaffinity(pid, numa.cpus(0))
    for number in range((looks + 1) * SOON):
        if number % looks:
            tenants[1].command("restore")  # the first thread's, and no page is used
        else:
            # Less than a tick, and without a switch: what it ran is nowhere counted
            while tenants[1].command("errand")["cpu"] not in numa.cpus(1):
                pass
        look(ksm)
    assert tenants[1].share_on(1) == 1
    assert process_stat(pid)["ksm_merged_remote"] == 0


@pytest.mark.parametrize("preferred", [False, True])
def test_pages_stay_where_a_cpuset_wants_them(
    ksm: Ksm, start: StartTenant, preferred: bool
) -> None:
    """Changed, it moves all pages; those who share these run where they were.

    Where their area prefers pages counts less: the kernel leaves that as it was.
    """
    tenants = [start(f"vm-{number}", mib=MIB) for number in range(2)]
    for tenant in tenants:
        os.sched_setaffinity(tenant.pid, numa.cpus(1))
    with ExitStack() as cpusets:
        cgroups = [
            cpusets.enter_context(stress.cpuset(f"cpuset-{number}", tenant.pid))
            for number, tenant in enumerate(tenants)
        ]
        for cgroup in cgroups:
            stress.put(cgroup / "cpuset.mems", 1)
        merge(ksm, tenants)
        for tenant in tenants:
            if preferred:
                tenant.command(f"prefer 1 {PAGES}")
            assert process_stat(tenant.pid)["ksm_merged_remote"] == 0
            assert tenant.share_on(1) == 1
        for cgroup in cgroups:
            stress.put(cgroup / "cpuset.mems", 0)
        with reading(tenants[0]), reading(tenants[1]):
            look_until_seen(ksm, SOON, PAGES)
            ksm.wait_scans(2)
            assert [tenant.share_on(0) for tenant in tenants] == [1, 1]
    for tenant in tenants:
        assert process_stat(tenant.pid)["ksm_merged_remote"] == 0
    model.check_intact(tenants)


def test_no_page_follows_to_where_its_tenant_wants_no_memory(
    ksm: Ksm, start: StartTenant
) -> None:
    """These have bound theirs to a node; they run on another one then."""
    tenants = [start(f"vm-{number}", 0, mib=MIB) for number in range(2)]
    merge(ksm, tenants)
    for tenant in tenants:
        os.sched_setaffinity(tenant.pid, numa.cpus(1))
    with reading(tenants[0]), reading(tenants[1]):
        look_until_seen(ksm, SOON, PAGES)
    assert [tenant.share_on(0) for tenant in tenants] == [1, 1]
    assert process_stat(tenants[1].pid)["ksm_merged_remote"] == 0


@pytest.mark.slow
def test_no_page_follows_to_where_its_area_wants_no_memory(
    ksm: Ksm, start: StartTenant
) -> None:
    """A tenant moves, and has bound half of its pages to where it was."""
    tenants = merged_on(0, ksm, start)
    bound = PAGES // 2
    tenants[1].command(f"bind 0 {bound}")
    os.sched_setaffinity(tenants[1].pid, numa.cpus(1))
    with reading(tenants[1]):
        look_until_seen(ksm, 2 * SOON, PAGES)
    nodes = tenants[1].equal_pages_nodes()
    assert nodes[bound:].count(1) >= 0.99 * (PAGES - bound), "the others follow"
    assert nodes[:bound] == [0] * bound
    model.check_intact(tenants)


@pytest.mark.windows
def test_looks_have_their_turn_while_ksmd_scans(ksm: Ksm, start: StartTenant) -> None:
    """All pages in one batch, which takes long."""
    tenant = start("vm", 0, mib=16)
    windows = stress.Windows()
    windows.open({"visit": 10_000})
    try:
        ksm.write("pages_to_scan", 1_000_000)
        ksm.start()
        for _ in range(3):
            look(ksm)
        assert ksm.read("full_scans") == 0
    finally:
        windows.close()
    ksm.wait_scans(2)
    model.check_intact([tenant])


def test_pages_follow_nice_values(ksm: Ksm, start: StartTenant) -> None:
    ksm.write_text("placement", "priority")
    tenants = [start(f"vm-{node}", node, mib=MIB) for node in (0, 1)]
    merge(ksm, tenants)
    for nices in ((-20, 19), (19, -20)):
        for tenant, nice in zip(tenants, nices, strict=True):
            tenant.renice(nice)
        wanted = policy.target("priority", (0, 1), nices)

        def found() -> list[float]:
            return [tenants[0].share_on(node) for node in (0, 1)]

        def as_wanted(wanted: Sequence[float] = wanted) -> bool:
            return policy.off_by_more_than_chance(found(), wanted, PAGES) is None

        wait.until(as_wanted, lambda: f"{found()}", poll=1)


def test_pages_follow_another_rule(ksm: Ksm, start: StartTenant) -> None:
    """Though nobody uses them, and though there are more than one look moves."""
    ksm.write_text("placement", "first")
    tenants = [start(f"vm-{node}", node, mib=16) for node in (0, 1)]
    merge(ksm, tenants)
    assert max(tenants[0].share_on(node) for node in (0, 1)) >= 0.95
    ksm.write_text("placement", "fair")
    least = 0.5 - policy.allowed(0.5, tenants[0].equal_pages)
    wait.until(
        lambda: min(tenants[0].share_on(node) for node in (0, 1)) >= least,
        lambda: f"{tenants[0].equal_pages_by_node()}",
        poll=1,
    )


@pytest.mark.slow
def test_looks_cost_what_they_may(ksm: Ksm, pair: list[Tenant]) -> None:
    """Each is paid for by the pause behind it: all but the last one have been."""

    def one() -> tuple[float, int]:
        before = ksm.read("look_cpu_us")
        wait.until(
            lambda: ksm.read("look_cpu_us") > before, lambda: "a look", poll=0.02
        )
        return time.monotonic(), ksm.read("look_cpu_us")

    ksm.write("look_cpu_permille", 5)
    with reading(pair[1]):
        looks = [one() for _ in range(8)]
    elapsed = looks[-1][0] - looks[0][0]
    paid = looks[-2][1] - looks[0][1]
    assert 0 < paid <= elapsed * 1e6 * 0.005


def test_there_are_no_looks_where_none_are_wanted(ksm: Ksm, pair: list[Tenant]) -> None:
    look(ksm)
    ksm.write("look_cpu_permille", 0)
    looks, moved = ksm.read("looks"), ksm.read("migrated")
    with reading(pair[1]):
        time.sleep(3)
    assert ksm.read("looks") <= looks + 1, "one may have been going on"
    assert ksm.read("migrated") == moved


@pytest.mark.parametrize("value", ["-1", "1001", "much", ""])
def test_no_other_cost_is_taken(ksm: Ksm, value: str) -> None:
    with pytest.raises(OSError, match="Invalid"):
        ksm.write_text("look_cpu_permille", value)
    assert ksm.read("look_cpu_permille") == 1000
