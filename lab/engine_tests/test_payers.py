# SPDX-License-Identifier: GPL-2.0-only
"""Who pays for replicas: memory cgroups without limits, by chance, and no others."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from nuksmlab import domains, stress, wait
from nuksmlab.domains import Group
from nuksmlab.fuzz import model
from nuksmlab.ksm import RARELY, Ksm
from nuksmlab.looks import SOON, look, look_until_seen, reading, readings, used
from nuksmlab.replicas import count, wait_for
from nuksmlab.shares import merge
from nuksmlab.tenant import Spec, Tenant

pytestmark = [pytest.mark.needs(nodes=2), pytest.mark.usefixtures("often")]

MIB = 2
PAGES = MIB * 256
# The engine's NUKSM_MOVED_BY_LOOK, pages, and NUKSM_LOOKED_AT_ONCE, mappings.
MOVED_BY_LOOK, LOOKED_AT_ONCE = 1024, 64


def test_there_are_none_for_who_has_a_limit(ksm: Ksm) -> None:
    """His cgroup pays for the copies: he might be killed for them."""
    cgroup = stress.Cgroup("payer")
    try:
        cgroup.limit(1 << 10)
        pair = [
            Tenant(Spec(f"vm-{node}", node, MIB), cgroup.prefix()) for node in (0, 1)
        ]
        merge(ksm, pair)
        with reading(pair[0]), reading(pair[1]):
            look_until_seen(ksm, SOON, 2 * PAGES)
            assert count(ksm) == 0
            cgroup.limit(None)
            wait_for(ksm, PAGES)
            cgroup.limit(1 << 10)
            wait_for(ksm, 0)
            model.check_intact(pair)
    finally:
        cgroup.end()


def test_who_has_a_limit_keeps_no_copy_from_others(
    ksm: Ksm, pair: list[Tenant]
) -> None:
    """He uses the same pages on the same node, and came last, so he is asked first."""
    cgroup = stress.Cgroup("limited")
    try:
        cgroup.limit(1 << 10)
        limited = Tenant(Spec("limited", 1, MIB), cgroup.prefix())
        merge(ksm, [*pair, limited])
        with reading(pair[0]), reading(pair[1]), reading(limited):
            wait_for(ksm, PAGES)
        model.check_intact([*pair, limited])
    finally:
        cgroup.end()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attacked", "others", "mappings"),
    [(False, 0, 1), (True, 0, 1), (True, 4, 1), (True, 0, 16)],
)
def test_payers_whose_limits_change_have_copies_made_no_more(
    ksm: Ksm, small_pair: list[Tenant], *, attacked: bool, others: int, mappings: int
) -> None:
    """Two who came later use the pages on the same node and pay for their copies;
    whoever of them pays for more gets a limit, and the other one has none. He who uses
    the pages there from then on has none, either: some time he pays, for copies that
    stay, however many mappings of each page they have. Others, who came last and for
    whom the pages are hot there, too, as they use them now and then, may never pay."""
    pages = small_pair[1].equal_pages
    with ExitStack() as stack:
        *cgroups, never = [stress.Cgroup(f"payer-{number}") for number in range(3)]
        for cgroup in (*cgroups, never):
            stack.callback(cgroup.end)
        never.limit(1 << 10)
        payers = [
            Tenant(
                Spec(f"payer-{number}", 1, mib=mappings, seed=3, distinct=pages),
                cgroup.prefix(),
            )
            for number, cgroup in enumerate(cgroups)
        ]
        merge(ksm, [*small_pair, *payers])
        last = [
            Tenant(Spec(f"other-{number}", 1, mib=1, seed=3), never.prefix())
            for number in range(others)
        ]
        tenants = [*small_pair, *payers, *last]
        merge(ksm, tenants)
        own = [cgroup.paid("anon") for cgroup in cgroups]
        stack.enter_context(readings([small_pair[0], *payers]))
        wait_for(ksm, pages)
        stack.enter_context(reading(small_pair[1]))
        with readings(last):
            look_until_seen(ksm, SOON, len(tenants) * pages // 2)
        made = [ksm.read("replicas_made")]
        for number in range(3 * SOON):
            paid = [cgroup.paid("anon") - own[n] for n, cgroup in enumerate(cgroups)]
            pays = paid.index(max(paid))
            if attacked:
                cgroups[1 - pays].limit(None)
                cgroups[pays].limit(1 << 10)
            if number % 4 == 0:
                with readings(last):
                    look_until_seen(ksm, 1, len(tenants) * pages // 2)
            look(ksm)
            made.append(ksm.read("replicas_made"))
        # Two might pay for a copy whose payer has a limit now; one of them has it stay.
        assert (made[-1] > made[0]) == attacked
        assert made[-1] - made[0] <= 3 * pages
        assert made[-1] - made[-SOON] <= pages // 10
        assert small_pair[1].share_on(1) >= 0.9
        model.check_intact(tenants)


def test_who_gets_a_limit_within_a_look_has_others_pay_from_then_on(ksm: Ksm) -> None:
    """Though he was found to have none before: nobody lacks a copy because of him. A
    look may end before it has asked all pages, and a busy machine may set the limit
    after its end: then there is less to see."""
    with ExitStack() as stack:
        cgroup = stress.Cgroup("payers")
        stack.callback(cgroup.end)
        pair = [Tenant(Spec(f"user-{node}", node, mib=3, seed=3)) for node in (0, 1)]
        payers = [
            Tenant(Spec(f"payer-{number}", 1, mib=3, seed=3), cgroup.prefix())
            for number in range(3)
        ]
        tenants, pages = [*pair, *payers], pair[0].equal_pages
        assert pages < MOVED_BY_LOOK
        merge(ksm, tenants)
        ksm.write("replica_percent", 0)
        stack.enter_context(readings(tenants))
        look_until_seen(ksm, SOON, len(tenants) * pages)
        seen, made = used(ksm), ksm.read("replicas_made")
        ksm.write("replica_percent", 100)
        wait.until(lambda: count(ksm) > 0, lambda: "no copy", poll=0.001)
        cgroup.limit(1 << 10)
        look(ksm)
        # One process after the other, all in the same order; the last few may be late.
        asked = min(pages, used(ksm) - seen - LOOKED_AT_ONCE)
        assert ksm.read("replicas_made") - made >= asked
        model.check_intact(tenants)


@contextmanager
def deep_cgroup(name: str, depth: int) -> Iterator[stress.Cgroup]:
    """So many below the first one, which alone has a limit; the last one is given."""
    with ExitStack() as stack:
        cgroup = stress.Cgroup(name)
        stack.callback(cgroup.end)
        cgroup.limit(1 << 10)
        for _ in range(depth):
            stress.put(cgroup.path / "cgroup.subtree_control", "+memory")
            cgroup = stress.Cgroup(f"{cgroup.path.relative_to(stress.CGROUPS)}/d")
            stack.callback(cgroup.end)
        yield cgroup


def cost_of_looks(ksm: Ksm, name: str, depth: int) -> int:
    """Of ten, in µs, where those who share pages are in two such cgroups by turns."""
    with ExitStack() as stack:
        cgroups = [
            stack.enter_context(deep_cgroup(f"{name}-{half}", depth)) for half in "ab"
        ]
        tenants = [
            Tenant(
                Spec(f"{name}-{number}", number % 2, mib=1, seed=7),
                cgroups[number // 2 % 2].prefix(),
            )
            for number in range(32)
        ]
        merge(ksm, tenants)
        with readings(tenants):
            look_until_seen(ksm, SOON, len(tenants) * tenants[0].equal_pages // 4)
            before = ksm.read("look_cpu_us")
            for _ in range(SOON):
                look(ksm)
            cost = ksm.read("look_cpu_us") - before
        model.check_intact(tenants)
    ksm.unmerge()
    return cost


@pytest.mark.slow
def test_how_deep_cgroups_are_is_found_once_in_a_look(ksm: Ksm) -> None:
    """Not for each page: tenants make them as deep as they like."""
    shallow = cost_of_looks(ksm, "shallow", 1)
    assert cost_of_looks(ksm, "deep", 400) <= 2 * shallow


@pytest.mark.skipif(not domains.exist(), reason="this kernel has no merge domains")
def test_who_is_leaving_pays_for_no_copy(
    ksm: Ksm, pair: list[Tenant], stranger: Group
) -> None:
    """His new domain would pay for pages of the old one, and see when they are used."""
    ksm.set_speed(RARELY)
    stranger.take(pair[1].pid)
    with reading(pair[0]), reading(pair[1]):
        look_until_seen(ksm, SOON, 2 * PAGES)
        assert list(ksm.replicas()) == [0]  # for who stays


def test_who_does_not_use_a_page_pays_for_no_copy(ksm: Ksm, pair: list[Tenant]) -> None:
    cgroup = stress.Cgroup("cold")
    try:
        cold = [
            Tenant(Spec(f"cold-{node}", node, MIB), cgroup.prefix()) for node in (0, 1)
        ]
        merge(ksm, [*pair, *cold])
        before = cgroup.paid("anon")
        with reading(pair[0]), reading(pair[1]):
            wait_for(ksm, PAGES)
            assert cgroup.paid("anon") <= before
            model.check_intact([*pair, *cold])
    finally:
        cgroup.end()
