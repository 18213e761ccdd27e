# SPDX-License-Identifier: GPL-2.0-only
"""`nuksm place --once`: shares, repetition, and what may not be touched."""

import pytest

from nuksmlab import program
from nuksmlab.demo import paper
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import StartTenant, Tenant


def local_pages(tenants: list[Tenant]) -> list[int]:
    """By the kernel's account."""
    return [t.equal_pages_by_node().get(t.spec.node, 0) for t in tenants]


def places(tenants: list[Tenant]) -> list[dict[int, int]]:
    return [tenant.equal_pages_by_node() for tenant in tenants]


def assert_intact(tenants: list[Tenant]) -> None:
    assert {t.spec.name: t.bad_pages() for t in tenants} == {
        t.spec.name: 0 for t in tenants
    }


def test_stock_kernel_puts_all_on_one_node(merged: list[Tenant]) -> None:
    pages = merged[0].equal_pages
    assert max(local_pages(merged)) >= 0.95 * pages


def test_fair_spreads_evenly(merged: list[Tenant], ksm: Ksm) -> None:
    sharing = ksm.merged()
    report = program.place_once("fair")
    ksm.settle()
    even = merged[0].equal_pages / len(merged)
    assert local_pages(merged) == pytest.approx([even] * len(merged), abs=1)
    assert report["refused"] == 0
    assert ksm.merged() == sharing
    assert_intact(merged)


@pytest.mark.parametrize("nices", [(-20, -11), (-16, -20), (0, 19), (5, 5)])
def test_priority_follows_nice(
    merged: list[Tenant], ksm: Ksm, nices: tuple[int, int]
) -> None:
    all_nices = [nices[number % 2] for number in range(len(merged))]
    for tenant, nice in zip(merged, all_nices, strict=True):
        tenant.renice(nice)
    sharing = ksm.merged()
    program.place_once("priority")
    ksm.settle()
    shares = [
        merged[0].equal_pages * percent / 100
        for percent in paper.priority_percent(all_nices)
    ]
    assert local_pages(merged) == pytest.approx(shares, abs=1)
    assert ksm.merged() == sharing
    assert_intact(merged)


@pytest.mark.parametrize("policy", ["fair", "priority"])
def test_second_pass_moves_nothing(merged: list[Tenant], ksm: Ksm, policy: str) -> None:
    merged[0].renice(3)
    assert program.place_once(policy)["moved"] > 0
    ksm.settle()
    second = program.place_once(policy)
    assert (second["planned"], second["moved"]) == (0, 0)


def test_report_agrees_with_the_kernel(merged: list[Tenant]) -> None:
    before = local_pages(merged)
    report = {t["pid"]: t for t in program.place_once("fair")["tenants"]}
    after = local_pages(merged)
    for tenant, was, is_ in zip(merged, before, after, strict=True):
        seen = report[tenant.pid]
        assert seen["name"] == tenant.spec.name
        assert seen["node"] == tenant.spec.node
        assert seen["merged_mappings"] == tenant.equal_pages
        assert (seen["local_before"], seen["local_after"]) == (was, is_)


def test_dry_run_plans_and_moves_nothing(merged: list[Tenant]) -> None:
    before = places(merged)
    report = program.place_once("fair", "--dry-run")
    assert report["planned"] > 0
    assert report["moved"] == 0
    assert places(merged) == before


def test_written_pages_stay_where_they_were_written(
    merged: list[Tenant], ksm: Ksm
) -> None:
    first, *others = merged
    written = first.equal_pages // 4
    first.command(f"write {written}")
    program.place_once("fair")
    ksm.settle()
    left = first.equal_pages - written
    assert local_pages([first])[0] - written <= left
    assert_intact([first, *others])
    first.command("restore")
    ksm.merge(sum(tenant.equal_pages for tenant in merged))
    program.place_once("fair")
    even = first.equal_pages / len(merged)
    assert local_pages(merged) == pytest.approx([even] * len(merged), abs=1)
    assert_intact(merged)


@pytest.mark.parametrize("option", ["--only", "--exclude"])
@pytest.mark.parametrize("by_name", [False, True])
def test_pages_of_a_group_can_be_chosen_or_left_alone(
    start: StartTenant, ksm: Ksm, option: str, by_name: bool
) -> None:
    named = [start(f"named-{node}", node, seed=1) for node in (0, 1)]
    others = [start(f"other-{node}", node, seed=2) for node in (0, 1)]
    ksm.merge(sum(tenant.equal_pages for tenant in (*named, *others)))
    spread, left = (named, others) if option == "--only" else (others, named)
    before = places(left)
    program.place_once("fair", option, "named-?" if by_name else str(named[0].pid))
    half = spread[0].equal_pages / 2
    assert local_pages(spread) == pytest.approx([half, half], abs=1)
    assert places(left) == before
    assert_intact([*named, *others])


def test_zero_pages_are_placed_too(start: StartTenant, ksm: Ksm) -> None:
    """A page with more sharers than one chain of the kernel holds."""
    tenants = [start(f"zero-{node}", node, equal=50, zero=50) for node in (0, 1)]
    ksm.merge(sum(int(t.facts["zero"]) + t.equal_pages for t in tenants))
    program.place_once("fair")
    ksm.settle()
    assert program.place_once("fair")["moved"] == 0
    assert_intact(tenants)


@pytest.mark.needs(nodes=2)
def test_memory_of_a_pass_grows_little(start: StartTenant, ksm: Ksm) -> None:
    """Two sizes, as the program itself takes some whatever it looks at."""
    peaks = []
    for mib in (8, 64):
        tenants = [start(f"size-{mib}-{node}", node, mib=mib) for node in (0, 1)]
        ksm.merge(sum(tenant.equal_pages for tenant in tenants))
        report = program.place_once("fair")
        peaks.append((report["merged_pages"], report["peak_memory_bytes"]))
        for tenant in tenants:
            tenant.quit()
        ksm.unmerge()
    (few, small), (many, large) = peaks
    assert (large - small) / (many - few) < 200


def test_one_at_a_time(merged: list[Tenant]) -> None:
    with program.start_daemon("fair", ["--interval", "3600"]) as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline(), "a pass"
        before = places(merged)
        second = program.run("place", "--once", "--policy", "priority")
        assert second.returncode == 1
        assert "another `nuksm place`" in second.stderr
        assert program.run("place", "--dry-run").returncode == 0
        assert places(merged) == before
        daemon.terminate()
        _, errors = daemon.communicate()
    assert daemon.returncode == 0, errors
    program.place_once("fair")
