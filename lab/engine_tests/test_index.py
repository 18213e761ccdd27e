# SPDX-License-Identifier: GPL-2.0-only
"""The forest, and the order in its trees: the same pages merge, at less cost."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nuksmlab.ksm import Ksm
from nuksmlab.tenant import StartTenant, Tenant

# Stock's, the paper's forest, checksums in one tree, and the default.
INDEXES = [("content", 0), ("content", 102400), ("checksum", 0), ("checksum", 16)]
MIX = {"equal": 60, "private": 20, "zero": 10, "changing": 10}
# Scans after which what all have left, and somebody held, is looked for again.
SEARCHED_EVERY = 16


def set_index(ksm: Ksm, order: str, kib_per_tree: int) -> None:
    ksm.write_text("index", order)
    ksm.write("kib_per_tree", kib_per_tree)


def mix(start: StartTenant) -> list[Tenant]:
    return [start(f"vm-{number}", **MIX) for number in range(2)]


def merge(ksm: Ksm, tenants: list[Tenant], scans: int = 6) -> dict[str, int]:
    """Counters after so many full scans, each over newly changed pages."""
    ksm.start()
    for _ in range(scans):
        for tenant in tenants:
            tenant.command("change")
        ksm.wait_scans(1)
    ksm.stop()
    return ksm.counters()


@pytest.mark.anywhere
def test_every_index_merges_the_same_pages(ksm: Ksm, start: StartTenant) -> None:
    found = {}
    for order, kib_per_tree in INDEXES:
        ksm.unmerge()
        set_index(ksm, order, kib_per_tree)
        tenants = mix(start)
        counters = merge(ksm, tenants)
        found[order, kib_per_tree] = (
            counters["pages_shared"],
            counters["pages_sharing"],
        )
        for tenant in tenants:
            assert tenant.bad_pages() == 0
            tenant.quit()
    assert found["content", 0][1] > 0
    assert len(set(found.values())) == 1, found


@pytest.mark.anywhere
@pytest.mark.parametrize(("order", "kib_per_tree"), INDEXES)
def test_tenants_stay_intact_while_they_write_and_fork(
    ksm: Ksm, start: StartTenant, order: str, kib_per_tree: int
) -> None:
    set_index(ksm, order, kib_per_tree)
    tenants = mix(start)
    ksm.start()
    for tenant in tenants:
        tenant.command("churn start")
    for _ in range(5):
        ksm.wait_scans(2)
        for tenant in tenants:
            assert tenant.command("fork")["bad"] == 0
            assert tenant.bad_pages() == 0
    for tenant in tenants:
        assert tenant.command("churn stop")["pages"] > 0
        assert tenant.bad_pages() == 0


def test_contents_are_compared_only_where_checksums_are_equal(
    ksm: Ksm, start: StartTenant
) -> None:
    compared = {}
    for order in ("content", "checksum"):
        ksm.unmerge()
        set_index(ksm, order, 0)
        before = ksm.read("content_compares")
        tenants = mix(start)
        counters = merge(ksm, tenants, scans=3)
        merged = counters["pages_shared"] + counters["pages_sharing"]
        compared[order] = (ksm.read("content_compares") - before) / merged
        for tenant in tenants:
            tenant.quit()
    # One comparison finds a page's equal; in the order of contents each level
    # of the tree costs one.
    assert compared["checksum"] < 2 < compared["content"]


@pytest.fixture(params=[0, 4])
def collisions(ksm: Ksm, request: pytest.FixtureRequest) -> Iterator[None]:
    """Checksums of so many bits, so that different pages have the same."""
    knob = Path("/sys/kernel/debug/nuksm/checksum_bits")
    knob.write_text(str(request.param))
    yield
    ksm.unmerge()
    knob.write_text("32")


@pytest.mark.anywhere
@pytest.mark.usefixtures("collisions")
@pytest.mark.parametrize(("order", "kib_per_tree"), INDEXES)
def test_collisions_cost_time_and_nothing_else(
    ksm: Ksm, start: StartTenant, order: str, kib_per_tree: int
) -> None:
    set_index(ksm, order, kib_per_tree)
    tenants = [start(f"vm-{n}", mib=4, equal=60, private=40) for n in range(2)]
    before = ksm.read("collisions")
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    ksm.stop()
    assert ksm.read("collisions") > before
    counters = ksm.counters()
    assert counters["pages_shared"] == counters["pages_sharing"]
    assert counters["pages_shared"] == tenants[0].equal_pages
    for tenant in tenants:
        assert tenant.command("fork")["bad"] == 0
        assert tenant.bad_pages() == 0


def test_number_of_trees_follows_the_memory(ksm: Ksm) -> None:
    set_index(ksm, "checksum", 0)
    assert ksm.read("trees") == 1
    set_index(ksm, "checksum", 1024)
    many = ksm.read("trees")
    set_index(ksm, "checksum", 2048)
    assert many // 2 == ksm.read("trees") > 1


def take_offline(node: int) -> Path:
    """Some block of a node's memory; many hold what cannot be moved."""
    for block in Path(f"/sys/devices/system/node/node{node}").glob("memory[0-9]*"):
        try:
            (block / "state").write_text("offline")
        except OSError:
            continue
        return block
    raise AssertionError("no block of memory goes offline")


@pytest.mark.needs(nodes=2)
def test_nodes_that_merge_apart_have_the_trees_of_their_memory(
    ksm: Ksm, start: StartTenant
) -> None:
    """So the roots take as much memory as without."""
    nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))
    ksm.start()
    together = ksm.read("trees")
    ksm.stop()
    ksm.write("merge_across_nodes", 0)
    try:
        assert ksm.read("trees") == together // nodes
        ksm.unmerge()
        tenants = [start(f"vm-{number}", 0, mib=1) for number in range(2)]
        ksm.merge(sum(tenant.equal_pages for tenant in tenants))
        ksm.unmerge()
        assert all(tenant.bad_pages() == 0 for tenant in tenants)
    finally:
        ksm.unmerge()
        ksm.write("merge_across_nodes", 1)
    assert ksm.read("trees") == together


@pytest.mark.needs(nodes=2)
def test_a_start_with_nothing_tracked_fits_the_forest_to_the_memory(
    ksm: Ksm, start: StartTenant
) -> None:
    ksm.start()
    before = ksm.read("trees")
    tenant = start("vm", mib=1)
    ksm.wait_scans(2)
    ksm.stop()
    block = take_offline(1)
    try:
        ksm.start()
        assert ksm.read("trees") == before, "pages are tracked"
        ksm.unmerge()
        ksm.start()
        assert ksm.read("trees") < before
    finally:
        (block / "state").write_text("online")
    ksm.unmerge()
    ksm.start()
    assert ksm.read("trees") == before
    assert tenant.bad_pages() == 0


def test_index_changes_only_while_nothing_is_tracked(
    ksm: Ksm, start: StartTenant
) -> None:
    set_index(ksm, "checksum", 16)
    tenant = start("vm")
    merge(ksm, [tenant], scans=3)
    for change in (("index", "content"), ("kib_per_tree", "102400")):
        with pytest.raises(OSError, match="busy") as refusal:
            ksm.write_text(*change)
        assert refusal.value.errno == errno.EBUSY
    assert ksm.read_text("index") == "content [checksum]"
    assert ksm.read("kib_per_tree") == 16
    ksm.unmerge()
    ksm.write_text("index", "content")
    assert ksm.read_text("index") == "[content] checksum"
    assert tenant.bad_pages() == 0


@pytest.fixture
def removals() -> Iterator[Callable[[], int]]:
    """Counts the pages that left the stable trees since it was last asked."""
    tracing = Path("/sys/kernel/tracing")
    (tracing / "trace").write_text("")
    enable = tracing / "events" / "ksm" / "ksm_remove_ksm_page" / "enable"
    enable.write_text("1")

    def count() -> int:
        lines = (tracing / "trace").read_text().splitlines()
        (tracing / "trace").write_text("")
        return sum(" ksm_remove_ksm_page: " in line for line in lines)

    yield count
    enable.write_text("0")


@pytest.mark.needs(nodes=2)  # User-Mode Linux has no tracepoints
@pytest.mark.parametrize("kib_per_tree", [0, 16])
def test_pages_that_are_gone_leave_the_trees(
    ksm: Ksm,
    start: StartTenant,
    removals: Callable[[], int],
    tmp_path: Path,
    kib_per_tree: int,
) -> None:
    """By checksum no search looks at the nodes it passes, and so finds them."""
    set_index(ksm, "checksum", kib_per_tree)
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    start("bystander", mib=1, equal=0, private=100)  # else nothing is scanned
    tenants = [start(f"vm-{number}", mib=1) for number in range(2)]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    lent = tenants[0].command(f"lend {tmp_path / 'pipe'}")["pages"]
    assert lent > 0
    for tenant in tenants:
        tenant.quit()
    ksm.wait_scans(2)
    assert ksm.merged() == 0
    assert removals() == tenants[0].equal_pages - lent
    ksm.wait_scans(2)
    assert removals() == 0, "pages in the pipe are still there"
    os.close(pipe)
    ksm.wait_scans(SEARCHED_EVERY + 2)
    assert removals() == lent


@pytest.mark.parametrize(
    ("name", "value"), [("index", "hash"), ("kib_per_tree", "-1"), ("index", "")]
)
def test_nonsense_is_refused(ksm: Ksm, name: str, value: str) -> None:
    before = ksm.read_text(name)
    with pytest.raises(OSError, match=r"Invalid|range"):
        ksm.write_text(name, value)
    assert ksm.read_text(name) == before
