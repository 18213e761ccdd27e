# SPDX-License-Identifier: GPL-2.0-only
"""The program on a kernel with the engine: what it shows, sets and leaves alone."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nuksmlab import numa, paths, program, wait
from nuksmlab.ksm import Ksm
from nuksmlab.looks import reading
from nuksmlab.tenant import StartTenant, Tenant
from nuksmlab.terminal import Terminal

pytestmark = pytest.mark.needs(nodes=2)


@pytest.fixture
def merged(ksm: Ksm, start: StartTenant) -> list[Tenant]:
    tenants = [start(f"vm-{node}", node, mib=8) for node in (0, 1)]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    return tenants


def test_status_shows_what_the_kernel_says(ksm: Ksm, merged: list[Tenant]) -> None:
    ksm.stop()
    engine = program.read_json("status")["engine"]
    assert engine["placement"] == "fair"
    assert engine["index"] == "checksum"
    for name in ("trees", "placed_spread", "migrated", "collisions", "compared_bytes"):
        assert engine[name] == ksm.read(name)
    assert sum(engine["pages_shared_by_node"].values()) == merged[0].equal_pages


def test_set_changes_the_placement_at_any_time(ksm: Ksm, merged: list[Tenant]) -> None:
    done = program.run("engine", "set", "placement=priority")
    assert (done.returncode, ksm.read_text("placement")) == (
        0,
        "first fair [priority]",
    )
    assert "pages merged before follow, as the kernel looks at them" in done.stdout
    assert program.run("engine", "set", "placement=fair").returncode == 0
    assert all(tenant.bad_pages() == 0 for tenant in merged)


@pytest.mark.usefixtures("merged")
def test_set_says_why_the_index_cannot_change_now(ksm: Ksm) -> None:
    done = program.run("engine", "set", "placement=priority", "index=content")
    assert done.returncode != 0
    assert "nuksm unmerge" in done.stderr + done.stdout
    assert "nothing was changed" in done.stderr + done.stdout
    assert ksm.read_text("placement") == "first [fair] priority"
    assert ksm.read_text("index") == "content [checksum]"


def test_set_changes_the_index_of_an_idle_kernel(ksm: Ksm) -> None:
    assert program.run("engine", "set", "kib_per_tree=0").returncode == 0
    assert ksm.read("trees") == 1
    assert program.run("engine", "set", "kib_per_tree=16").returncode == 0
    assert ksm.read("trees") > 1


def test_place_corrects_what_was_merged_before(ksm: Ksm, start: StartTenant) -> None:
    ksm.write("look_cpu_permille", 0)
    ksm.write_text("placement", "first")
    tenants = [start(f"vm-{node}", node, mib=8) for node in (0, 1)]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    ksm.write_text("placement", "fair")
    done = program.run("place", "--once", "--policy", "fair")
    assert done.returncode == 0
    assert "this kernel places new merges by itself" in done.stderr
    half = tenants[0].equal_pages / 2
    assert tenants[0].equal_pages_by_node()[0] == pytest.approx(half, abs=1)


def test_place_leaves_alone_what_follows_who_uses_it(
    ksm: Ksm, merged: list[Tenant]
) -> None:
    before = [tenant.equal_pages_by_node() for tenant in merged]
    done = program.run("place", "--once", "--policy", "priority")
    assert done.returncode == 0
    assert "nothing moves: this kernel places merged pages itself" in done.stdout
    assert "`nuksm engine set placement=priority`" in done.stdout
    assert [tenant.equal_pages_by_node() for tenant in merged] == before
    assert ksm.read_text("placement") == "first [fair] priority"


def test_what_is_for_root_is_unknown_to_others(ksm: Ksm) -> None:
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    done = subprocess.run(
        [*nobody, str(paths.NUKSM), "status", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    engine = json.loads(done.stdout)["engine"]
    assert engine["placement"] == "fair"
    assert engine.get("collisions") is None
    assert ksm.read("collisions") >= 0


@pytest.mark.slow
def test_top_and_recordings_show_use_and_replicas(ksm: Ksm, start: StartTenant) -> None:
    ksm.write("look_cpu_permille", 1000)
    ksm.write("replica_percent", 100)
    tenants = [start(f"vm-{node}", node, mib=2) for node in (0, 1)]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    made = ksm.read("replicas_made")
    path = Path(os.environ["NUKSM_OUTPUT"]) / "used.jsonl"
    path.unlink(missing_ok=True)
    with reading(tenants[0]), reading(tenants[1]):
        wait.until(lambda: ksm.read("replicas_made") > made, lambda: "no replica")
        with Terminal((str(paths.NUKSM), "top", "--interval", "2"), 80, 24) as top:
            line = r"^used   [0-9.]+ % locally; [0-9]+ replicas take [0-9.]+ [KM]iB$"
            print(top.wait(lambda text: bool(re.search(line, text, re.MULTILINE))))
        options = ["--output", str(path), "--interval", "5s", "--duration", "16s"]
        assert program.run("record", *options).returncode == 0
    sample = json.loads(path.read_text().splitlines()[-1])
    replicas = sum(sample["engine"]["replicas_by_node"].values())
    assert replicas > 0
    assert sample["replica_bytes"] == replicas * os.sysconf("SC_PAGESIZE")
    page = path.with_suffix(".html")
    assert program.run("report", str(path), "--output", str(page)).returncode == 0
    html = page.read_text()
    assert "uses seen by looks that are local" in html
    assert '<section id="replicas">' in html


def foretold(tenants: list[Tenant], percents: str) -> Any:
    pids = [word for tenant in tenants for word in ("--pid", str(tenant.pid))]
    return program.read_json("estimate", "--replicas", percents, *pids)["replicas"]


@pytest.fixture
def busy() -> Iterator[None]:
    """On each node somebody else wants the CPU, too, which then forgets translations:
    use of a page sets the accessed bit again.
    """
    loops = []
    for node in (0, 1):
        cpus = numa.cpus(node)
        loop = ["sh", "-c", "while :; do :; done"]
        loops.append(subprocess.Popen(loop))
        os.sched_setaffinity(loops[-1].pid, cpus)
    yield
    for process in loops:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.usefixtures("busy")
def test_estimate_says_what_replicas_would_buy(ksm: Ksm, start: StartTenant) -> None:
    ksm.stop()
    tenants = [start(f"vm-{node}", node, mib=2) for node in (0, 1)]
    pages = tenants[0].equal_pages
    with reading(tenants[0]), reading(tenants[1]):
        both = foretold(tenants, "0,50")
    print(both)
    assert both["one_copy"]["local"] == pytest.approx(0.5, abs=0.05)
    assert both["budgets"][0]["local"] == both["one_copy"]["local"]
    assert both["budgets"][1]["replica_pages"] <= pages / 2
    assert both["budgets"][1]["local"] == pytest.approx(0.75, abs=0.05)
    assert 0.9 * pages < both["all"]["replica_pages"] <= pages
    assert both["all"]["local"] == pytest.approx(1.0, abs=0.05)
    assert both["used_by_unknown_pages"] == 0
    with reading(tenants[1]):
        one = foretold(tenants, "50")
    print(one)
    assert one["all"]["replica_pages"] == 0
    assert one["one_copy"]["local"] == pytest.approx(1.0, abs=0.05)
    idle = foretold(tenants, "50")
    print(idle)
    assert idle["uses"] < 0.1 * one["uses"]
    assert all(tenant.bad_pages() == 0 for tenant in tenants)


@pytest.mark.usefixtures("busy")
def test_whose_use_of_a_merged_page_it_is_estimate_does_not_guess(
    merged: list[Tenant], ksm: Ksm
) -> None:
    ksm.stop()
    with reading(merged[0]):
        found = foretold(merged, "50")
    print(found)
    assert found["used_by_unknown_pages"] > 0.9 * 2 * merged[0].equal_pages
    assert found["all"]["replica_pages"] == 0
