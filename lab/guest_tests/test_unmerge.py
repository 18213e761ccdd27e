# SPDX-License-Identifier: GPL-2.0-only
"""`nuksm unmerge`: what it predicts, refuses, and leaves behind."""

import json
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from nuksmlab import paths, program, stress, wait
from nuksmlab.ksm import RUN, STOP, UNMERGE, Ksm
from nuksmlab.tenant import StartTenant, Tenant, fill_node

BIG_MIB = 64


def unmerge(*options: str) -> dict[str, Any]:
    result: dict[str, Any] = program.read_json("unmerge", *options)
    return result


def at_home(tenants: list[Tenant]) -> bool:
    """By the kernel's account."""
    return all(
        tenant.equal_pages_by_node() == {tenant.spec.node: tenant.equal_pages}
        for tenant in tenants
    )


def places(tenants: list[Tenant]) -> list[dict[int, int]]:
    return [tenant.equal_pages_by_node() for tenant in tenants]


def start_unmerging(*options: str) -> subprocess.Popen[str]:
    command = [str(paths.NUKSM), "unmerge", "--json", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def wait_for_change(tenants: list[Tenant], before: object) -> None:
    wait.until(
        lambda: places(tenants) != before, lambda: "the first pages to be un-merged"
    )


def bad_pages(tenants: list[Tenant]) -> int:
    return sum(tenant.bad_pages() for tenant in tenants)


def test_costs_come_as_predicted(merged: list[Tenant], ksm: Ksm) -> None:
    before = merged[0].equal_pages_by_node()
    predicted = {row["node"]: row for row in unmerge("--dry-run")["nodes"]}
    assert ksm.read("run") == RUN
    assert merged[0].equal_pages_by_node() == before, "a dry run changes nothing"
    for tenant in merged:
        row = predicted[tenant.spec.node]
        assert row["copies"] == tenant.equal_pages
        assert row["freed"] == before.get(tenant.spec.node, 0)
    report = unmerge()
    assert report["unmerged"] == sum(tenant.equal_pages for tenant in merged)
    assert report["refusals"] == {}
    assert report["left_to_kernel"] == 0
    assert at_home(merged)
    assert bad_pages(merged) == 0
    assert ksm.read("run") == UNMERGE
    assert ksm.merged() == 0


def test_tenants_that_write_meanwhile_are_unharmed(
    start: StartTenant, ksm: Ksm, nodes: list[int]
) -> None:
    mix = {"equal": 60, "private": 10, "zero": 10, "changing": 20}
    tenants = [start(f"vm-{node}", node, **mix) for node in nodes]
    ksm.write("use_zero_pages", 1)
    try:
        ksm.merge(sum(tenant.equal_pages for tenant in tenants))
        zeroes = ksm.read("ksm_zero_pages")
        assert zeroes > 0
        for tenant in tenants:
            tenant.command("churn start")
        report = unmerge("--rate", "2000")
        assert report["zero_pages"] == zeroes
        assert ksm.read("ksm_zero_pages") == 0, "the kernel does these in one go"
        assert bad_pages(tenants) == 0
        for tenant in tenants:
            assert tenant.command("churn stop")["pages"] > 0
        assert bad_pages(tenants) == 0
        assert at_home(tenants)
    finally:
        ksm.write("use_zero_pages", 0)


def test_a_reader_that_goes_away_ends_nothing(merged: list[Tenant], ksm: Ksm) -> None:
    command = 'set -o pipefail; "$1" unmerge | true'
    done = subprocess.run(["bash", "-c", command, "bash", paths.NUKSM], check=False)
    assert done.returncode == 0
    assert ksm.read("run") == UNMERGE
    assert ksm.merged() == 0
    assert at_home(merged)
    assert bad_pages(merged) == 0


def test_one_process_alone(merged: list[Tenant], ksm: Ksm) -> None:
    ksm.stop()
    away = min(merged, key=lambda t: t.equal_pages_by_node().get(t.spec.node, 0))
    others = [tenant for tenant in merged if tenant is not away]
    before = places(others)
    done = program.run("unmerge", "--pid", str(away.pid))
    assert done.returncode == 0, done.stderr
    assert at_home([away])
    assert places(others) == before
    assert bad_pages(merged) == 0
    assert ksm.read("run") == STOP


def test_ksmd_is_said_to_merge_one_process_again(
    merged: list[Tenant], ksm: Ksm
) -> None:
    done = program.run("unmerge", "--pid", str(merged[0].pid))
    # Whether it has merged some of them again by then is ksmd's affair.
    assert "merges these pages again" in done.stdout, done.stderr
    assert ksm.read("run") == RUN


@pytest.fixture
def big(start: StartTenant, ksm: Ksm) -> list[Tenant]:
    """Two tenants whose copies fill what a test leaves of a node."""
    tenants = [start(f"vm-{node}", node, mib=BIG_MIB) for node in (0, 1)]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    return tenants


def node_of_copies(tenants: list[Tenant]) -> int:
    """The node that pays: all merged pages are on the other one."""
    away = min(tenants, key=lambda t: t.equal_pages_by_node().get(t.spec.node, 0))
    return away.spec.node


@pytest.mark.slow
@pytest.mark.needs(nodes=2)
def test_full_node_is_refused(big: list[Tenant], start: StartTenant, ksm: Ksm) -> None:
    node = node_of_copies(big)
    before = places(big)
    fillers = fill_node(start, node, 8)
    done = program.run("unmerge")
    assert done.returncode != 0
    assert f"node {node} lacks" in done.stderr
    assert places(big) == before
    assert ksm.read("run") == RUN, "as if nobody had asked"
    assert program.run("unmerge", "--dry-run").returncode != 0, "it says so, too"
    for filler in fillers:
        filler.quit()
    assert unmerge()["end"] == "finished"
    assert at_home(big)
    assert bad_pages(big) == 0


@pytest.mark.needs(nodes=2)
def test_force_does_what_does_not_fit(
    big: list[Tenant], start: StartTenant, ksm: Ksm
) -> None:
    """The kernel then finds room elsewhere: the node is a preference."""
    node = node_of_copies(big)
    fillers = fill_node(start, node, 8)
    report = unmerge("--force")
    assert [row["node"] for row in report["nodes"] if row["missing"] > 0] == [node]
    assert report["end"] == "finished"
    assert ksm.merged() == 0
    assert not at_home(big), "there was no room for that"
    assert bad_pages([*big, *fillers]) == 0


@pytest.mark.slow
@pytest.mark.needs(nodes=2)
def test_node_that_fills_meanwhile_ends_it(
    big: list[Tenant], start: StartTenant, ksm: Ksm
) -> None:
    node = node_of_copies(big)
    before = places(big)
    fillers = fill_node(start, node, BIG_MIB + 8)
    with start_unmerging("--rate", "1000") as process:
        wait_for_change(big, before)
        process.send_signal(signal.SIGSTOP)
        fillers.append(start("late", node, mib=BIG_MIB // 2, equal=0, private=100))
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate()
        assert process.returncode != 0
    report = json.loads(out)
    assert report["end"] == "no_room"
    assert 0 < report["unmerged"] < report["mappings"]
    assert (report["run"], ksm.read("run")) == (STOP, STOP)
    assert ksm.merged() > 0, "the rest is still merged"
    assert bad_pages([*big, *fillers]) == 0
    for filler in fillers:
        filler.quit()
    assert unmerge()["end"] == "finished"
    assert at_home(big)


@pytest.fixture
def cgroup() -> Iterator[stress.Cgroup]:
    stress.account_memory()
    cgroup = stress.Cgroup("limited")
    yield cgroup
    cgroup.end()


@pytest.mark.anywhere
def test_limit_of_a_memory_cgroup_is_kept(
    start: StartTenant, ksm: Ksm, nodes: list[int], cgroup: stress.Cgroup
) -> None:
    limited = start("limited", nodes[0], mib=16, prefix=tuple(cgroup.prefix()))
    tenants = [limited, start("free", nodes[-1], mib=16)]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    before = places(tenants)
    cgroup.limit(cgroup.used_mib() + 8)
    done = program.run("unmerge")
    assert done.returncode != 0
    assert "memory cgroup /limited lacks" in done.stderr
    assert "node" not in done.stderr.partition("lacks")[0], "the nodes have room"
    assert places(tenants) == before
    assert ksm.read("run") == RUN, "as if nobody had asked"
    cgroup.limit(None)
    assert unmerge()["end"] == "finished"
    assert at_home(tenants)
    assert bad_pages(tenants) == 0
    assert cgroup.oom_kills() == 0


def test_interrupted_half_way(merged: list[Tenant], ksm: Ksm) -> None:
    before = places(merged)
    with start_unmerging("--rate", "500") as process:
        wait_for_change(merged, before)
        process.terminate()
        out, _ = process.communicate()
        assert process.returncode != 0
    report = json.loads(out)
    assert report["end"] == "interrupted"
    assert 0 < report["unmerged"] < report["mappings"]
    assert (report["run"], ksm.read("run")) == (STOP, STOP)
    assert bad_pages(merged) == 0
    rest = unmerge()
    assert rest["end"] == "finished"
    # A page whose sharers all but one have copies is the kernel's to free.
    assert rest["mappings"] <= report["mappings"] - report["unmerged"]
    assert at_home(merged)
    assert bad_pages(merged) == 0
