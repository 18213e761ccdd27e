# SPDX-License-Identifier: GPL-2.0-only
"""Whose memory has to be elsewhere, as a cpuset says, has his merged pages there, and
moves none of those that others share.
"""

import mmap
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nuksmlab import numa, replicas, stress, wait
from nuksmlab.area import address_of
from nuksmlab.fuzz import model
from nuksmlab.ksm import FAST, Ksm, process_stat
from nuksmlab.looks import SOON, look, look_until_seen, reading, readings
from nuksmlab.shares import check, keep_merging
from nuksmlab.tenant import StartTenant, Tenant, fill_node

MIB = 8
# Pages after which ksmd is in the middle of a process.
BATCH = 100
SCANS = 3

pytestmark = pytest.mark.needs(nodes=2)


@contextmanager
def cpusets(tenants: Sequence[Tenant]) -> Iterator[list[Path]]:
    """One for each of them."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(stress.cpuset(f"cpuset-{number}", tenant.pid))
            for number, tenant in enumerate(tenants)
        ]


@pytest.fixture
def pair(ksm: Ksm, start: StartTenant) -> Iterator[list[Tenant]]:
    """Two of node 0, merged, and nobody looks; what is in them has to last."""
    ksm.write("look_cpu_permille", 0)
    pair = [start(f"vm-{number}", 0, mib=MIB) for number in range(2)]
    keep_merging(ksm, pair)
    yield pair
    model.check_intact(pair)


def test_what_others_moved_goes_back(ksm: Ksm, start: StartTenant) -> None:
    """By cpuset.mems of a cgroup, which its owner may write to, while ksmd rests."""
    tenants = [start(f"vm-{node}", node, mib=MIB) for node in range(2)]
    keep_merging(ksm, tenants)
    ksm.stop()
    with stress.cpuset("mover", tenants[0].pid) as cgroup:
        for node in (0, 1):
            stress.put(cgroup / "cpuset.mems", node)
        assert tenants[0].equal_pages_by_node() == {1: tenants[0].equal_pages}
        stress.put(cgroup / "cpuset.mems", "0-1")  # moves nothing
        ksm.start()
        ksm.set_speed(FAST)
        ksm.wait_scans(SCANS)
        check(tenants[0], [1 / 2, 1 / 2])


def test_who_changes_a_cpuset_moves_no_pages_of_others(
    ksm: Ksm, start: StartTenant
) -> None:
    """But those that he alone has."""
    ksm.write("look_cpu_permille", 0)  # or one finds that his home is another one
    tenants = [start(f"vm-{node}", node, mib=MIB) for node in (0, 1, 1)]
    keep_merging(ksm, tenants)
    ksm.scan_once()
    unshared = ksm.read("migrate_unshared")
    with stress.cpuset("mover", tenants[0].pid) as cgroup:
        for _ in range(SCANS + 1):
            before = tenants[0].equal_pages_nodes()
            for node in (1, 0):
                stress.put(cgroup / "cpuset.mems", node)
                assert tenants[0].equal_pages_nodes() == before
            ksm.scan_once()
        assert ksm.read("migrate_unshared") == unshared
        for tenant in tenants[1:]:
            check(tenant, [1 / 2, 1 / 2])
            assert tenant.bad_pages() == 0
            tenant.quit()
        for node in (1, 0):
            stress.put(cgroup / "cpuset.mems", node)
            assert tenants[0].share_on(node) == 1
            for _ in range(SCANS):
                ksm.scan_once()
            assert tenants[0].share_on(node) == 1


@pytest.mark.slow
def test_who_changes_a_cpuset_all_the_time_keeps_pages_from_nobody(
    ksm: Ksm, start: StartTenant
) -> None:
    """Who uses them has them near, and they stay merged."""
    ksm.write("look_cpu_permille", 1000)
    user = start("user", 1, mib=1)
    movers = [start(f"mover-{number}", 0, mib=1) for number in range(2)]
    keep_merging(ksm, [user, *movers])
    with reading(user):
        look_until_seen(ksm, SOON, user.equal_pages)
        ksm.scan_once()
        unshared = ksm.read("migrate_unshared")
        with stress.cpuset("mover", movers[0].pid) as cgroup:
            for turn in range(2 * SOON):
                near = user.share_on(1)
                assert near >= 0.9
                for node in (1, 0, 1)[: 2 + turn % 2]:
                    stress.put(cgroup / "cpuset.mems", node)
                    assert user.share_on(1) >= near
                look(ksm)
                ksm.scan_once()
    assert ksm.read("migrate_unshared") == unshared
    for tenant in [user, *movers]:
        merged = process_stat(tenant.pid)["ksm_merging_pages"]
        assert merged == tenant.equal_pages
    model.check_intact([user, *movers])


def test_what_is_not_merged_follows(ksm: Ksm) -> None:
    """As in stock: what a parent has together with a child that is moved."""
    count = 64
    area = mmap.mmap(-1, count * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE)
    area.madvise(mmap.MADV_NOHUGEPAGE)
    area.write(os.urandom(len(area)))
    ksm.start()
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        with stress.cpuset("child", child) as cgroup:
            for node in (0, 1):
                stress.put(cgroup / "cpuset.mems", node)
                nodes = numa.nodes_of(os.getpid(), address_of(area), count)
                assert nodes == [node] * count
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_pages_go_where_cpusets_want_them_without_looks(
    ksm: Ksm, pair: list[Tenant]
) -> None:
    """Nobody uses them. What only one of two may not have on a node stays there."""
    ksm.scan_once()
    with cpusets(pair) as cgroups:
        for cgroup in cgroups:
            stress.put(cgroup / "cpuset.mems", 1)
            assert [tenant.share_on(0) for tenant in pair] == [1, 1]
        for _ in range(SCANS):
            ksm.scan_once()
        assert [tenant.share_on(1) for tenant in pair] == [1, 1]
        stress.put(cgroups[0] / "cpuset.mems", 0)
        for _ in range(SCANS):
            ksm.scan_once()
        check(pair[1], [1 / 2, 1 / 2])
    for tenant in pair:
        assert process_stat(tenant.pid)["ksm_merging_pages"] == tenant.equal_pages


def test_looks_leave_pages_where_cpusets_want_them(
    ksm: Ksm, pair: list[Tenant]
) -> None:
    """Moved there while ksmd rested; homes are what they were until it comes by."""
    ksm.write("look_cpu_permille", 1000)
    ksm.stop()
    with cpusets(pair) as cgroups:
        for cgroup in cgroups:
            stress.put(cgroup / "cpuset.mems", 1)
        ksm.write("pages_to_scan", 0)
        ksm.start()
        with reading(pair[0]):
            for _ in range(SOON):
                look(ksm)
        assert [tenant.share_on(1) for tenant in pair] == [1, 1]
        ksm.set_speed(FAST)
        ksm.wait_scans(SCANS)
        assert [tenant.share_on(1) for tenant in pair] == [1, 1]
        assert process_stat(pair[0].pid)["ksm_merged_remote"] == 0


@pytest.mark.slow
def test_looks_bring_back_what_others_moved(ksm: Ksm, start: StartTenant) -> None:
    """To who uses it: they do not wait for ksmd, who is to ask it, too."""
    ksm.write("look_cpu_permille", 1000)
    tenants = [start(f"vm-{node}", node, mib=MIB) for node in range(2)]
    keep_merging(ksm, tenants)
    ksm.stop()
    with stress.cpuset("mover", tenants[0].pid) as cgroup:
        for nodes in (0, 1, "0-1"):
            stress.put(cgroup / "cpuset.mems", nodes)
    assert tenants[0].share_on(1) == 1
    ksm.write("pages_to_scan", 0)
    ksm.start()
    with reading(tenants[0]):
        look_until_seen(ksm, 2 * SOON, tenants[0].equal_pages)
        assert tenants[0].share_on(0) >= 0.9
    model.check_intact(tenants)


@pytest.mark.slow
def test_who_changes_a_cpuset_in_each_scan_keeps_looks_from_nobody(
    ksm: Ksm, start: StartTenant
) -> None:
    """He has each content twice, so that ksmd, who asks once, has more to ask."""
    ksm.write("look_cpu_permille", 1000)
    user, other = tenants = [start(f"vm-{node}", node, mib=1) for node in (1, 0)]
    flips = start("flips", 0, mib=2, distinct=user.equal_pages)
    keep_merging(ksm, [*tenants, flips])
    with cpusets([flips]) as [cgroup]:
        for node in (0, 1, 0, 1):
            stress.put(cgroup / "cpuset.mems", node)
            ksm.scan_once()
        with reading(user):
            look_until_seen(ksm, 2 * SOON, user.equal_pages)
            assert user.share_on(1) >= 0.9
            ksm.write("replica_percent", 100)
            with reading(other):
                look_until_seen(ksm, 2 * SOON, 2 * user.equal_pages)
                assert replicas.count(ksm) >= 0.9 * user.equal_pages
    model.check_intact([*tenants, flips])


@pytest.mark.slow
@pytest.mark.parametrize("alone", [True, False])
def test_who_may_not_have_pages_at_home_draws_none_there(
    ksm: Ksm, start: StartTenant, *, alone: bool
) -> None:
    """Though somebody else, who does not use them, may: until ksmd comes by."""
    tenants = [start(name, int(name == "c"), mib=MIB) for name in "abc"]
    keep_merging(ksm, tenants)
    ksm.write("pages_to_scan", 0)
    ksm.write("look_cpu_permille", 1000)
    with cpusets(tenants[:1]) as [cgroup]:
        stress.put(cgroup / "cpuset.mems", 1)
        before = tenants[0].share_on(1)
        users = tenants[:1] if alone else tenants[::2]
        with readings(users):  # where they were, on nodes 0 and 1
            look_until_seen(ksm, 2 * SOON, len(users) * users[0].equal_pages)
        assert tenants[0].share_on(1) >= (before if alone else 0.97)
    model.check_intact(tenants)


@pytest.mark.slow
def test_who_may_not_have_pages_at_home_shares_no_copy_there(
    ksm: Ksm, start: StartTenant
) -> None:
    """That somebody else has there, who uses it: until ksmd comes by."""
    tenants = [start(name, int(name != "c"), mib=MIB) for name in "abc"]
    keep_merging(ksm, tenants)
    ksm.write("pages_to_scan", 0)
    ksm.write("look_cpu_permille", 1000)
    ksm.write("replica_percent", 100)
    barred, *others = tenants
    pages = barred.equal_pages
    with cpusets([barred]) as [cgroup]:
        stress.put(cgroup / "cpuset.mems", 0)
        before = barred.share_on(1)
        with reading(others[0]), reading(others[1]):
            look_until_seen(ksm, 2 * SOON, 2 * pages)
        assert replicas.count(ksm) >= 0.9 * pages
        assert barred.share_on(1) <= before
    model.check_intact(tenants)


@pytest.mark.slow
def test_ksmd_goes_by_what_cpusets_say_now(ksm: Ksm, pair: list[Tenant]) -> None:
    """Not as it came to the process, in the middle of which it rests meanwhile."""
    with cpusets(pair) as cgroups:
        for cgroup in cgroups:
            stress.put(cgroup / "cpuset.mems", 0)
        ksm.scan_once()
        ksm.rest()
        before = ksm.read("pages_scanned")
        ksm.write("pages_to_scan", BATCH)
        ksm.start()
        wait.until(
            lambda: ksm.read("pages_scanned") > before, lambda: "ksmd has not begun"
        )
        for cgroup, tenant in zip(cgroups, pair, strict=True):
            stress.put(cgroup / "cpuset.mems", 1)
            os.sched_setaffinity(tenant.pid, numa.cpus(1))
        ksm.write("look_cpu_permille", 1000)
        with reading(pair[0]), reading(pair[1]):
            look_until_seen(ksm, 2 * SOON, pair[0].equal_pages)
            ksm.write("look_cpu_permille", 0)
        remote = [process_stat(tenant.pid)["ksm_merged_remote"] for tenant in pair]
        assert max(remote) <= 0.1 * pair[0].equal_pages
        ksm.scan_once()
        for tenant, least in zip(pair, remote, strict=True):
            assert process_stat(tenant.pid)["ksm_merged_remote"] <= least


def test_who_gets_pages_of_his_own_has_them_where_his_cpuset_wants_them(
    ksm: Ksm, pair: list[Tenant]
) -> None:
    """ksmd has not been there since that was changed."""
    ksm.scan_once()
    with cpusets(pair[:1]) as [cgroup]:
        stress.put(cgroup / "cpuset.mems", 1)
        assert pair[0].share_on(0) == 1
        ksm.unmerge()
        assert [pair[0].share_on(1), pair[1].share_on(0)] == [1, 1]


@pytest.mark.needs(nodes=4)
def test_pages_do_not_stay_for_want_of_room(
    ksm: Ksm, start: StartTenant, pair: list[Tenant]
) -> None:
    """Where a cpuset wants none of them, while another of its nodes has some."""
    with cpusets(pair) as cgroups, ExitStack() as stack:
        for filler in fill_node(start, 1, 0):
            stack.callback(filler.quit)
        for cgroup in cgroups:
            stress.put(cgroup / "cpuset.mems", "1-2")
        for _ in range(2 * SCANS):
            ksm.scan_once()
        assert [tenant.share_on(0) for tenant in pair] == [0, 0]


@pytest.mark.needs(nodes=4)
def test_pages_of_several_nodes_go_to_as_many(ksm: Ksm, start: StartTenant) -> None:
    ksm.write("look_cpu_permille", 0)
    tenants = [start(f"vm-{node}", node, mib=MIB) for node in range(2)]
    keep_merging(ksm, tenants)
    with cpusets(tenants) as cgroups:
        for nodes, wanted in (
            ("0-1", [1 / 2, 1 / 2, 0, 0]),
            ("2-3", [0, 0, 1 / 2, 1 / 2]),
            ("0,3", [1 / 2, 0, 0, 1 / 2]),
            ("1-2", [0, 1 / 2, 1 / 2, 0]),
            ("2-3", [0, 0, 1 / 2, 1 / 2]),
            ("1-3", [0, 0, 1 / 2, 1 / 2]),
            ("0,2", [1 / 2, 0, 1 / 2, 0]),
            ("1,3", [0, 1 / 2, 0, 1 / 2]),
            ("2-3", [0, 0, 1 / 2, 1 / 2]),
            ("0-3", [0, 0, 1 / 2, 1 / 2]),
            ("0-1", [1 / 2, 1 / 2, 0, 0]),
        ):
            for cgroup in cgroups:
                stress.put(cgroup / "cpuset.mems", nodes)
            for _ in range(SCANS):
                ksm.scan_once()
            check(tenants[0], wanted)
    model.check_intact(tenants)
