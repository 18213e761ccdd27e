# SPDX-License-Identifier: GPL-2.0-only
"""Replicas: pages that several nodes use are near for each, within a budget."""

import mmap
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nuksmlab import numa, policy, stress, wait
from nuksmlab.area import child, equal_to
from nuksmlab.fuzz import model
from nuksmlab.ksm import RARELY, Ksm, process_stat
from nuksmlab.looks import (
    SOON,
    look,
    look_until_seen,
    reading,
    readings,
    use_alike,
    use_now_and_then,
)
from nuksmlab.puppet import fork_and_wait, puppet
from nuksmlab.replicas import count, wait_for
from nuksmlab.shares import merge
from nuksmlab.tenant import Spec, StartTenant, Tenant, lend

pytestmark = [pytest.mark.needs(nodes=2), pytest.mark.usefixtures("often")]

MIB = 2
PAGES = MIB * 256

# Its memory is called broken; of so many pages.
HARD_OFFLINE = Path("/sys/devices/system/memory/hard_offline_page")
FAILED = 16

NOBODY = 65534

# Looks within which pages that are used in each get the budget of others.
TAKEN = 60

# One page in twenty; so few of them may be missed.
HOT = PAGES // 20
FEW = 2


def near(pair: Sequence[Tenant], first: int = 0, pages: int = PAGES) -> int:
    """How many of so many pages from `first` on are near for both."""
    nodes = zip(*(tenant.equal_pages_nodes() for tenant in pair), strict=True)
    return list(nodes)[first : first + pages].count((0, 1))


def test_pages_that_both_use_are_near_for_both(ksm: Ksm, pair: list[Tenant]) -> None:
    with reading(pair[0]), reading(pair[1]):
        wait_for(ksm, PAGES)
        assert [pair[node].share_on(node) for node in (0, 1)] == [1, 1]
        assert all(process_stat(vm.pid)["ksm_merged_remote"] == 0 for vm in pair)
        assert ksm.read("pages_shared") == 2 * PAGES
        model.check_intact(pair)


def test_pages_that_nobody_uses_are_one_again(ksm: Ksm, pair: list[Tenant]) -> None:
    with reading(pair[0]), reading(pair[1]):
        wait_for(ksm, PAGES)
    wait_for(ksm, 0)
    assert ksm.counters()["pages_shared"] == PAGES
    assert ksm.counters()["pages_sharing"] == PAGES
    assert ksm.read("stable_node_chains") == ksm.read("stable_node_dups") == 0
    assert ksm.read("replicas_folded") >= PAGES
    model.check_intact(pair)


@pytest.mark.slow
def test_pages_that_one_uses_are_where_he_is(ksm: Ksm, pair: list[Tenant]) -> None:
    with reading(pair[1]):
        with reading(pair[0]):
            wait_for(ksm, PAGES)
        wait_for(ksm, 0)
        look_until_seen(ksm, SOON, PAGES)
        assert pair[1].share_on(1) == 1
        assert ksm.read("pages_shared") == PAGES
    model.check_intact(pair)


@pytest.mark.windows
def test_who_ends_just_then_takes_along_nobody_who_is_drawn_in(
    ksm: Ksm, pair: list[Tenant]
) -> None:
    """Sharers of replicas are about to have his page, as he does not use it: and it is
    gone. The kernel says who touches what it was filed by."""
    windows = stress.Windows()
    with reading(pair[1]), ExitStack() as stack:
        with reading(pair[0]):
            wait_for(ksm, PAGES)
            there = ksm.replicas()[1]
            assert there
            windows.open({"draw_in": 100_000})
            stack.callback(windows.close)
        wait.until(
            lambda: ksm.replicas()[1] < there, lambda: f"{ksm.replicas()}", poll=0.01
        )
        pair[0].quit()
        for _ in range(2):
            look(ksm)
    model.check_intact(pair[1:])


def test_there_are_no_more_than_the_budget_has(ksm: Ksm, pair: list[Tenant]) -> None:
    ksm.write("replica_percent", 10)
    budget = PAGES // 10
    with reading(pair[0]), reading(pair[1]):
        most = seen = 0
        while seen < SOON:
            goal = ksm.read("looks") + 1
            while ksm.read("looks") < goal:
                most = max(most, count(ksm))
            seen += 1
        assert most == count(ksm) == budget
        ksm.write("replica_percent", 5)
        wait_for(ksm, PAGES // 20)
    model.check_intact(pair)


@pytest.mark.parametrize(
    ("file", "value"),
    [("replica_percent", "0"), ("placement", "first"), ("look_cpu_permille", "0")],
)
def test_there_are_none_where_nobody_wants_them(
    ksm: Ksm, pair: list[Tenant], file: str, value: str
) -> None:
    with reading(pair[0]), reading(pair[1]):
        wait_for(ksm, PAGES)
        ksm.write_text(file, value)
        wait_for(ksm, 0)
        assert ksm.read("pages_shared") == PAGES
        model.check_intact(pair)


def wait_for_near(ksm: Ksm, pair: Sequence[Tenant], first: int) -> None:
    """Until the pages from `first` on are near for both, who use these the most."""
    for tenant in pair:
        tenant.command(f"churn prefer:{first},{HOT}")
    wait.until(
        lambda: near(pair, first, HOT) >= HOT - FEW,
        lambda: f"{near(pair, first, HOT)} near, {ksm.replicas()}",
        poll=1,
    )
    for tenant in pair:
        tenant.command("churn stop")


@pytest.mark.slow
def test_the_hottest_pages_get_the_budget(ksm: Ksm, pair: list[Tenant]) -> None:
    """All are used within each look; then others are the hottest."""
    ksm.write("replica_percent", 6)
    wait_for_near(ksm, pair, 0)
    wait_for_near(ksm, pair, PAGES // 2)
    assert count(ksm) <= 0.06 * PAGES
    model.check_intact(pair)


def spend_budget(ksm: Ksm, start: StartTenant, percent: int) -> list[Tenant]:
    """Two who have all of it; nobody else uses anything yet."""
    ksm.write("replica_percent", percent)
    before = ksm.merged()
    pair = [start(f"first-{node}", node, mib=1, seed=7) for node in (0, 1)]
    ksm.merge(before + sum(tenant.equal_pages for tenant in pair))
    budget = ksm.read("pages_sharing") * percent // 100
    with reading(pair[0]), reading(pair[1]):
        wait.until(
            lambda: count(ksm) >= min(budget, pair[0].equal_pages) - FEW,
            lambda: f"{count(ksm)} of {budget} replicas",
            poll=1,
        )
    return pair


def saved(ksm: Ksm) -> int:
    """What merging would save without replicas, in pages."""
    return ksm.read("pages_sharing") + count(ksm)


def use_in_turn(ksm: Ksm, tenants: list[Tenant], turn: int) -> None:
    """Of three looks one sees them use all of their pages."""
    with readings(tenants if turn % 3 == 0 else []):
        look(ksm)


def looks_until_near(
    ksm: Ksm, pair: list[Tenant], pages: int, in_turns: list[Tenant]
) -> None:
    """As many as it takes, while others use theirs by turns."""
    for turn in range(TAKEN):
        if near(pair) >= pages:
            return
        use_in_turn(ksm, in_turns, turn)
    raise AssertionError(f"{near(pair)} near of {pages}, {ksm.replicas()}")


@pytest.mark.slow
def test_few_pages_get_what_they_need_from_who_uses_his_by_turns(
    ksm: Ksm, start: StartTenant
) -> None:
    """So glances become longer and shorter, but what was seen is not forgotten. What is
    seen of a single page that is left over may be chance."""
    few = [start(f"few-{node}", node, mib=1, equal=2, private=98) for node in (0, 1)]
    merge(ksm, few)
    by_turns = spend_budget(ksm, start, 80)
    with reading(few[0]), reading(few[1]):
        looks_until_near(ksm, few, few[0].equal_pages - 1, by_turns)
    model.check_intact([*few, *by_turns])


@contextmanager
def forking_reader(ksm: Ksm, tenant: Tenant, node: int) -> Iterator[None]:
    """It has the tenant's pages on a node, and a child that ksmd does not know of yet;
    then it reads them all the time."""
    areas: list[mmap.mmap] = []

    def offer() -> None:
        os.sched_setaffinity(0, numa.cpus(node))
        areas.append(equal_to(tenant))

    def read() -> None:
        while True:
            areas[0][:: mmap.PAGESIZE]

    with puppet(offer, fork_and_wait, read) as reader:
        before = ksm.merged()
        reader.next()
        ksm.merge(before + tenant.equal_pages)
        rarely(ksm)
        pid = int(reader.next())
        reader.begin()
        try:
            yield
        finally:
            os.kill(pid, signal.SIGKILL)


def rarely(ksm: Ksm) -> None:
    """ksmd scans so little that a new process stays unknown to it."""
    ksm.set_speed(RARELY)


@pytest.mark.slow
def test_what_cannot_be_copied_takes_no_copies_from_others(
    ksm: Ksm, start: StartTenant
) -> None:
    """As a fork has mapped it, which ksmd does not know of yet."""
    forked = start("forked", 0, mib=1, seed=3)
    with ExitStack() as stack:
        by_turns = spend_budget(ksm, start, 33)
        for node in (0, 1):
            stack.enter_context(forking_reader(ksm, forked, node))
        # There is hardly more than is spent, though they share pages, too.
        ksm.write("replica_percent", -(-100 * count(ksm) // saved(ksm)))
        had, folded = near(by_turns), ksm.read("replicas_folded")
        for turn in range(TAKEN // 2):
            use_in_turn(ksm, by_turns, turn)
        assert near(by_turns) >= had
        assert ksm.read("replicas_folded") == folded
    model.check_intact([forked, *by_turns])


def test_a_fork_of_another_keeps_nobody_from_a_copy(
    ksm: Ksm, small_pair: list[Tenant]
) -> None:
    """The page stays for those of whom it is."""
    pages = small_pair[0].equal_pages
    area = equal_to(small_pair[0])
    ksm.merge(3 * pages)
    rarely(ksm)
    with child(area), reading(small_pair[0]), reading(small_pair[1]):
        looks_until_near(ksm, small_pair, pages, [])
    model.check_intact(small_pair)


@pytest.mark.slow
def test_who_may_not_pay_makes_no_page_look_wanted(
    ksm: Ksm, start: StartTenant
) -> None:
    """He uses pages always, and those who might pay for them seldom: that is no reason
    to leave the budget with whoever has it, as there are others who want it."""
    cgroup = stress.Cgroup("limited")
    try:
        cgroup.limit(1 << 10)
        limited = [
            Tenant(Spec(f"limited-{node}", node, MIB, seed=3), cgroup.prefix())
            for node in (0, 1)
        ]
        seldom = [start(f"seldom-{node}", node, mib=MIB, seed=3) for node in (0, 1)]
        always = [start(f"always-{node}", node, mib=1, seed=5) for node in (0, 1)]
        merge(ksm, [*limited, *seldom, *always])
        by_turns = spend_budget(ksm, start, 10)
        tenants = [*limited, *seldom, *always, *by_turns]
        for tenant in seldom:
            tenant.command("churn prefer:0,1")
        with readings([*limited, *always]):
            half = count(ksm) // 2
            looks_until_near(ksm, always, half, by_turns)
        for tenant in seldom:
            tenant.command("churn stop")
        model.check_intact(tenants)
    finally:
        cgroup.end()


@pytest.mark.slow
def test_who_weighs_more_gets_the_budget(ksm: Ksm, start: StartTenant) -> None:
    """All use all of their pages, those of each pair: there are copies of half."""
    ksm.write_text("placement", "priority")
    ksm.write("replica_percent", 50)
    light, heavy = (
        [start(f"vm-{seed}-{node}", node, mib=MIB, seed=seed) for node in (0, 1)]
        for seed in (1, 2)
    )
    for nice, pair in ((19, light), (-20, heavy)):
        for tenant in pair:
            # They get the same of a CPU's time, and leave nuksmd and this test theirs
            os.sched_setscheduler(tenant.pid, os.SCHED_IDLE, os.sched_param(0))
            tenant.renice(nice)
    merge(ksm, [*light, *heavy])
    with readings([*light, *heavy]):
        wait.until(
            lambda: near(heavy) >= PAGES - FEW,
            lambda: f"{near(heavy)} near, {near(light)} of others, {ksm.replicas()}",
            poll=1,
        )
        assert near(light) <= FEW
        model.check_intact([*light, *heavy])


def test_root_is_told_how_many_of_a_processs_pages_are_copies(
    ksm: Ksm, pair: list[Tenant]
) -> None:
    with reading(pair[0]), reading(pair[1]):
        wait_for(ksm, PAGES)
        copies = [process_stat(vm.pid)["ksm_merged_replicas"] for vm in pair]
        assert copies == [ksm.replicas()[node] for node in (0, 1)]
    wait_for(ksm, 0)
    assert all(process_stat(vm.pid)["ksm_merged_replicas"] == 0 for vm in pair)
    own = subprocess.run(
        ["cat", "/proc/self/ksm_stat"],
        user=NOBODY,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "ksm_merged_remote" in own.stdout
    assert "ksm_merged_replicas" not in own.stdout


@pytest.mark.slow
def test_nothing_is_made_or_folded_while_nothing_changes(
    ksm: Ksm, pair: list[Tenant]
) -> None:
    with reading(pair[0]), reading(pair[1]):
        look_until_seen(ksm, 2 * SOON, 2 * PAGES)
        names = ("replicas_made", "replicas_folded", "migrated")
        before = [ksm.read(name) for name in names]
        assert before[0] >= PAGES
        look_until_seen(ksm, 2 * SOON, 2 * PAGES)
        assert [ksm.read(name) for name in names] == before
    model.check_intact(pair)


@pytest.mark.needs(nodes=4)
def test_a_copy_keeps_no_page_from_who_uses_it_alike(
    ksm: Ksm, start: StartTenant
) -> None:
    """Two use it, neither of whom is hot. Who is hot has a copy, on a third node."""
    tenants = [start(f"vm-{node}", node, mib=MIB) for node in range(3)]
    merge(ksm, tenants)
    first, hot, alike = tenants
    with reading(first):
        look_until_seen(ksm, SOON, PAGES)
        assert first.share_on(0) == 1
        hot.command("churn read")
        wait_for(ksm, PAGES)
    use_alike(ksm, 2 * SOON, alike, first)
    found = [alike.share_on(node) for node in (0, 2)]
    assert policy.off_by_more_than_chance(found, [0.5, 0.5], PAGES) is None
    assert hot.share_on(1) == 1
    model.check_intact(tenants)


@pytest.mark.slow
def test_a_copy_that_somebody_holds_is_not_made_again(
    ksm: Ksm, small_pair: list[Tenant], tmp_path: Path
) -> None:
    """Or he who pays would do so again and again, for what nobody shares any more."""
    pages = small_pair[0].equal_pages
    with reading(small_pair[0]), reading(small_pair[1]):
        wait_for(ksm, pages)
    pipe = lend(small_pair[1], tmp_path / "pipe")
    held = ksm.replicas()[1]
    for _ in range(2):
        made = ksm.read("replicas_made")
        wait_for(ksm, 0)
        with reading(small_pair[0]), reading(small_pair[1]):
            wait_for(ksm, pages)
            model.check_intact(small_pair)
        assert ksm.replicas()[1] == held
        assert ksm.read("replicas_made") == made + pages - held
    os.close(pipe)
    wait_for(ksm, 0)
    model.check_intact(small_pair)


@pytest.mark.slow
def test_who_did_not_pay_for_a_copy_that_somebody_holds_pays_for_another(
    ksm: Ksm, small_pair: list[Tenant], tmp_path: Path
) -> None:
    """And who paid, and left, does not pay for what he uses."""
    first, holder = small_pair
    pages = first.equal_pages
    with reading(first), reading(holder):
        wait_for(ksm, pages)
    pipe = lend(holder, tmp_path / "pipe")
    wait_for(ksm, 0)
    cgroup = stress.Cgroup("newcomer")
    try:
        newcomer = Tenant(Spec("newcomer", 1, mib=1, seed=3), cgroup.prefix())
        merge(ksm, [first, holder, newcomer])
        holder.quit()
        made = ksm.read("replicas_made")
        with reading(first), reading(newcomer):
            wait_for(ksm, pages)
        assert ksm.read("replicas_made") == made + pages
        model.check_intact([first, newcomer])
    finally:
        cgroup.end()
        os.close(pipe)


@pytest.mark.slow
def test_no_more_copies_are_held_and_paid_for_than_there_are_nodes(
    ksm: Ksm, small_pair: list[Tenant], tmp_path: Path
) -> None:
    """Each payer holds his own, and leaves. Those of the next one would be more.

    Where pages go to the payers' node, by lot, it is the other one who has copies.
    """
    first, other = small_pair
    pages = first.equal_pages
    other.quit()
    with ExitStack() as stack:
        for number in range(3):
            cgroup = stress.Cgroup(f"payer-{number}")
            stack.callback(cgroup.end)
            spec = Spec(f"payer-{number}", 1, mib=1, seed=3)
            payer = Tenant(spec, cgroup.prefix())
            merge(ksm, [first, payer])
            with reading(first), reading(payer):
                if number < 2:
                    wait_for(ksm, pages)
                    assert ksm.replicas()[1] > 0
                else:
                    look_until_seen(ksm, SOON, 2 * pages)
                    assert 1 not in ksm.replicas()
            model.check_intact([first, payer])
            stack.callback(os.close, lend(payer, tmp_path / f"pipe-{number}"))
            wait_for(ksm, 0)
            payer.quit()


@pytest.mark.slow
def test_who_uses_pages_now_and_then_keeps_them_from_nobody(
    ksm: Ksm, pair: list[Tenant]
) -> None:
    """Half of them are near him by lot: the other one gets copies of these."""
    near_him = round(PAGES * pair[0].share_on(0))
    made = ksm.read("replicas_made")
    with reading(pair[1]):
        use_now_and_then(ksm, pair[0], 2 * PAGES)
        assert pair[1].share_on(1) == 1
        assert count(ksm) == ksm.read("replicas_made") - made == near_him
        assert pair[0].share_on(0) == near_him / PAGES
        wait_for(ksm, 0)
        look_until_seen(ksm, SOON, PAGES)
        assert pair[1].share_on(1) == 1
        assert ksm.read("pages_shared") == PAGES
    model.check_intact(pair)


def test_newcomers_join_the_one_on_their_node(
    ksm: Ksm, start: StartTenant, pair: list[Tenant]
) -> None:
    with reading(pair[0]), reading(pair[1]):
        wait_for(ksm, PAGES)
        late = [start(f"late-{node}", node, mib=MIB) for node in (0, 1)]
        merge(ksm, [*pair, *late])
        assert [late[node].share_on(node) for node in (0, 1)] == [1, 1]
        assert count(ksm) == PAGES
    model.check_intact([*pair, *late])


def test_who_is_left_has_pages_that_are_paid_for(ksm: Ksm, pair: list[Tenant]) -> None:
    with reading(pair[1]):
        pair[0].command("churn read")
        wait_for(ksm, PAGES)
        pair[0].quit()
        wait_for(ksm, 0)
        assert process_stat(pair[1].pid)["ksm_merging_pages"] == PAGES
        model.check_intact(pair[1:])


def test_who_writes_leaves_the_others_theirs(ksm: Ksm, pair: list[Tenant]) -> None:
    with reading(pair[0]), reading(pair[1]):
        wait_for(ksm, PAGES)
        pair[1].again(range(0, PAGES, 2))
        merge(ksm, pair)
        wait_for(ksm, PAGES)
    model.check_intact(pair)


def test_un_merging_takes_them_all(ksm: Ksm, pair: list[Tenant]) -> None:
    with reading(pair[0]), reading(pair[1]):
        wait_for(ksm, PAGES)
        ksm.unmerge()
        assert ksm.merged() == count(ksm) == 0
        model.check_intact(pair)


@pytest.mark.slow
def test_a_page_has_as_many_sharers_as_it_may(ksm: Ksm, start: StartTenant) -> None:
    ksm.write("max_page_sharing", 3)
    try:
        tenants = [start(f"vm-{n}", n % 2, mib=1) for n in range(6)]
        merge(ksm, tenants)
        for tenant in tenants:
            tenant.command("churn read")
        look_until_seen(ksm, 2 * SOON, 6 * 256)
        assert [tenants[n].share_on(n % 2) for n in range(6)] == [1] * 6
        for tenant in tenants:
            tenant.command("churn stop")
        wait_for(ksm, 0)
        model.check_intact(tenants)
    finally:
        ksm.unmerge()
        ksm.write("max_page_sharing", 256)


def test_nobody_is_given_a_page_whose_memory_has_failed(
    ksm: Ksm, pair: list[Tenant]
) -> None:
    with reading(pair[0]), reading(pair[1]):
        wait_for(ksm, PAGES)
    first = int(pair[0].facts["equal_at"], 16)
    failed = model.frames(pair[0].pid, first, PAGES)[:FAILED]
    for frame in failed:
        stress.put(HARD_OFFLINE, frame * mmap.PAGESIZE)
    wait_for(ksm, 0)
    first = int(pair[1].facts["equal_at"], 16)
    assert not set(failed) & set(model.frames(pair[1].pid, first, PAGES))
    model.check_intact(pair[1:])


def test_a_look_sees_more_that_is_local(ksm: Ksm, pair: list[Tenant]) -> None:
    with reading(pair[0]), reading(pair[1]):
        wait_for(ksm, PAGES)
        remote = ksm.read("used_remote")
        for _ in range(SOON):
            look(ksm)
        assert ksm.read("used_remote") == remote
