# SPDX-License-Identifier: GPL-2.0-only
"""Counts against access patterns whose misses are known beforehand."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nuksmlab import counter, numa
from nuksmlab.counter import Caches, Counts
from nuksmlab.virtual import VirtualMachine
from nuksmlab.workload import Instance

NODES = numa.online()
SYS_MOVE_PAGES = 279
MPOL_MF_MOVE = 2
PAGE_BYTES = 4096
LINE_BYTES = 64
CACHES = Caches()
LARGE_KIB = 4 * CACHES.llc_kib
PASSES = 4
# What the program does besides, and what other programs do on its CPU.
NOISE = 0.005


def move_pages(instance: Instance, node_of: Callable[[int], int]) -> None:
    """Puts each of the instance's pages on the node that it is told."""
    count = instance.pages
    addresses = (ctypes.c_void_p * count)(
        *(instance.at + page * PAGE_BYTES for page in range(count))
    )
    nodes = (ctypes.c_int * count)(*map(node_of, range(count)))
    status = (ctypes.c_int * count)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(
        SYS_MOVE_PAGES, instance.pid, count, addresses, nodes, status, MPOL_MF_MOVE
    ):
        raise OSError(ctypes.get_errno(), "move_pages")
    assert list(status) == list(nodes)


def count(
    node: int, kib: int, passes: int, node_of: Callable[[int], int] | None = None
) -> Counts:
    with Instance("sweep", 3, node, kib) as instance:
        if node_of:
            move_pages(instance, node_of)
        instance.run(passes)
    return counted(3, node)


def counted(tenant: int, node: int) -> Counts:
    """In the last measured phase, which was that tenant's there."""
    counts = counter.read(Path(os.environ["NUKSM_OUTPUT"]) / counter.COUNTS)[-1]
    assert (counts["tenant"], counts["node"]) == (tenant, node)
    assert counts["local"] == counts["by_node"][node]
    assert counts["local"] + counts["remote"] == sum(counts["by_node"])
    return counts


def lines(kib: int) -> int:
    return kib * 1024 // LINE_BYTES


def about(expected: float) -> object:
    """Up to the noise, of a large sweep."""
    return pytest.approx(expected, abs=NOISE * PASSES * lines(LARGE_KIB))


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("remote_share", [0, 0.5, 1])
def test_each_miss_is_counted_for_the_node_of_its_page(
    node: int, remote_share: float
) -> None:
    pages = LARGE_KIB * 1024 // PAGE_BYTES
    far = int(pages * remote_share)
    other = (node + 1) % len(NODES)
    counts = count(node, LARGE_KIB, PASSES, lambda page: other if page < far else node)
    misses = PASSES * lines(LARGE_KIB)
    assert counts["by_node"][other] == about(misses * remote_share)
    assert counts["remote"] == about(misses * remote_share)
    assert counts["local"] == about(misses * (1 - remote_share))
    assert counts["elsewhere"] < NOISE * misses


def test_pages_of_all_nodes_are_told_apart() -> None:
    counts = count(0, LARGE_KIB, PASSES, lambda page: page % len(NODES))
    misses = PASSES * lines(LARGE_KIB)
    assert counts["by_node"] == [about(misses / len(NODES))] * len(NODES)


@pytest.mark.parametrize("node", [0, NODES[-1]])
def test_a_guests_misses_are_counted_for_the_node_of_its_memory(node: int) -> None:
    """It knows no nodes, and says itself when it is measured."""
    kernel = Path(os.environ["NUKSM_VM_KERNEL"])
    with VirtualMachine("sweep", 5, node, LARGE_KIB, kernel) as guest:
        guest.run(PASSES)
    counts = counted(5, node)
    misses = PASSES * lines(LARGE_KIB)
    assert counts["local"] == about(misses)
    assert counts["remote"] == about(0)
    assert counts["elsewhere"] < NOISE * misses


def test_what_fits_the_last_level_cache_misses_it_once() -> None:
    kib = CACHES.llc_kib // 2
    counts = count(0, kib, PASSES)
    assert counts["l1_misses"] == pytest.approx(PASSES * lines(kib), rel=0.2)
    assert counts["local"] == pytest.approx(lines(kib), rel=0.2)


def test_what_fits_the_first_cache_misses_nothing_twice() -> None:
    passes = 1000
    kib = CACHES.l1_kib // 2
    counts = count(0, kib, passes)
    assert counts["loads"] >= passes * lines(kib)
    assert counts["l1_misses"] < 0.05 * passes * lines(kib)


def test_each_load_and_instruction_is_counted() -> None:
    few, many = (count(0, LARGE_KIB, passes) for passes in (1, 5))
    added = {name: many[name] - few[name] for name in ("loads", "instructions")}
    loads = 4 * lines(LARGE_KIB)
    assert added["loads"] == pytest.approx(loads, rel=NOISE)
    # The loop adds, steps, compares and jumps, however it is compiled.
    assert 3 * loads <= added["instructions"] <= 6 * loads


def test_two_tenants_at_once_are_counted_apart() -> None:
    with (
        Instance("sweep", 1, 0, LARGE_KIB) as first,
        Instance("sweep", 2, NODES[-1], LARGE_KIB) as second,
    ):
        for instance in (first, second):
            instance.begin(PASSES)
        for instance in (first, second):
            instance.end()
    path = Path(os.environ["NUKSM_OUTPUT"]) / counter.COUNTS
    by_tenant = {counts["tenant"]: counts for counts in counter.read(path)[-2:]}
    misses = about(PASSES * lines(LARGE_KIB))
    others = [about(0)] * (len(NODES) - 1)
    assert by_tenant[1]["by_node"] == [misses, *others]
    assert by_tenant[2]["by_node"] == [*others, misses]
