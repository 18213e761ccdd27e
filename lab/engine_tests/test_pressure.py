# SPDX-License-Identifier: GPL-2.0-only
"""Who needs memory gets what he would get if there were no replicas."""

import itertools
import mmap
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from nuksmlab import numa, stress, wait
from nuksmlab.area import equal_to, keep_mmap_lock
from nuksmlab.forkers import family
from nuksmlab.fuzz import model
from nuksmlab.ksm import RARELY, Ksm
from nuksmlab.looks import reading, readings
from nuksmlab.puppet import Puppet, fork_and_wait, puppet
from nuksmlab.replicas import wait_for
from nuksmlab.tenant import StartTenant, Tenant, taken

pytestmark = pytest.mark.needs(nodes=2)

# Half of the replicas are on each node: 16 MiB, more than two percent of its memory.
MIB = 32
NODE = 1
WITHIN = 0.01

MORE_THAN_THERE_IS = 1 << 28  # pages
MANY_PAGES = bytes(4 << 20)

# Areas: more than are gone through to move a page.
LONG = 4200
# Percent of 1 MiB: each page takes up to 30 ms (seen), and nobody waits for long.
LONG_EQUAL = 6

# 250 replicas that are in so many areas take so long that nuksmd's pause after them,
# ten times as long, is not over when so much is taken: more than the high watermark.
DEAR = 4 * LONG
LEFT_MIB = 64

# Those of whom each fork copies so many areas have their lock most of the time.
FORKERS, FORKED_AREAS = 4, 1000

# Of what merging saves: half of what all replicas are if four have each page.
HALF_OF_ALL = 100 // 3 // 2

# Free pages in the lists of CPUs are nobody's when memory is short. Without replicas,
# too, there are 1 to 15 MiB of them when the job is killed, by chance: two percent.
# So the lists are as short as can be, a third of a percent for both CPUs; what folding
# leaves in longer ones is not seen here.
LENGTH_OF_LISTS = Path("/proc/sys/vm/percpu_pagelist_high_fraction")
SHORTEST = 1 << 20
LISTED = 600

MERGED_MIB = 32


@pytest.fixture(autouse=True)
def short_lists() -> Iterator[None]:
    before = LENGTH_OF_LISTS.read_text()
    stress.put(LENGTH_OF_LISTS, SHORTEST)
    yield
    LENGTH_OF_LISTS.write_text(before)


def oom_kills() -> int:
    found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.M)
    assert found
    return int(found[1])


def replicate(ksm: Ksm, tenants: list[Tenant]) -> None:
    """All pages, each of two; then looks are too rare to fold any, or to move pages."""
    ksm.write("replica_percent", 100)
    ksm.write("look_cpu_permille", 1000)
    with readings(tenants):
        wait_for(ksm, sum(tenant.equal_pages for tenant in tenants) // 2)
        ksm.write("look_cpu_permille", 1)


@contextmanager
def sharing(
    ksm: Ksm, tenants: list[Tenant], then: Callable[[], object], stacked: int
) -> Iterator[list[Puppet]]:
    """One more on each node has the tenants' pages; `then` is his next step. They are
    looked for in so many areas more."""
    areas: list[mmap.mmap] = []

    def offer(node: int) -> None:
        os.sched_setaffinity(0, numa.cpus(node))
        areas.append(equal_to(tenants[node], stacked))

    with ExitStack() as stack:
        sharers = [
            stack.enter_context(puppet(partial(offer, node), then)) for node in (0, 1)
        ]
        before = ksm.merged()
        for sharer in sharers:
            sharer.next()
        ksm.merge(before + 2 * tenants[0].equal_pages)
        yield sharers


def fold(ksm: Ksm) -> None:
    """All: what is left are the pages that are left when memory becomes short."""
    ksm.write("replica_percent", 0)
    wait_for(ksm, 0)


def a_job(start: StartTenant) -> Tenant:
    """Who is to be killed; nothing that can be given up hides that memory is short."""
    stress.put(Path("/proc/sys/vm/drop_caches"), 1)
    job = start("job", NODE, mib=1, equal=0, private=100)
    stress.put(Path(f"/proc/{job.pid}/oom_score_adj"), 1000)
    wait.until(
        lambda: numa.listed_pages(NODE) <= LISTED,
        lambda: f"{LISTED} pages in lists; there are {numa.listed_pages(NODE)}",
    )
    return job


def take_all(job: Tenant, tenants: list[Tenant], told: Path) -> int:
    """How many pages of the node the job gets until it is killed, and nobody else."""
    kills = oom_kills()
    job.send(f"take {MORE_THAN_THERE_IS} {told}")
    while job.process.poll() is None:
        assert not any(tenant.bad_pages() for tenant in tenants)
    assert oom_kills() - kills == 1
    return taken(told)


def fill(start: StartTenant, left_mib: int, told: Path) -> None:
    """Somebody takes all memory of the node but so much, and keeps it."""
    filler = start("filler", NODE, mib=1, equal=0, private=100)
    filler.command(f"take {(numa.free_mib(NODE) - left_mib) << 8} {told}")


def take_everything() -> None:
    """Memory of any node, until whoever does that is killed."""
    stress.put(Path("/proc/self/oom_score_adj"), 1000)
    areas: list[mmap.mmap] = []
    while True:
        areas.append(mmap.mmap(-1, len(MANY_PAGES), flags=mmap.MAP_PRIVATE))
        areas[-1].write(MANY_PAGES)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_replicas_cost_nobody_memory(
    ksm: Ksm, start: StartTenant, tmp_path: Path, times: int
) -> None:
    """Nor his life: of all processes only the one that takes all is killed. Whose
    memory he may not have keeps what he has."""
    tenants = [start(f"vm-{node}", node, mib=MIB) for node in (0, 1)]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    got: dict[str, list[int]] = {"with": [], "without": []}
    with numa.running_on(1 - NODE):
        for _ in range(times):
            replicate(ksm, tenants)
            others = ksm.replicas()[1 - NODE]
            got["with"].append(take_all(a_job(start), tenants, tmp_path / "told"))
            assert ksm.replicas() == {1 - NODE: others}, got
            model.check_audit()
            fold(ksm)
            got["without"].append(take_all(a_job(start), tenants, tmp_path / "told"))
    print(got)
    for pages, usual in itertools.product(got["with"], got["without"]):
        assert abs(pages / usual - 1) <= WITHIN, got


@pytest.mark.slow
@pytest.mark.parametrize(
    ("then", "stacked"),
    [(fork_and_wait, 0), (fork_and_wait, LONG), (keep_mmap_lock, 0)],
)
def test_who_has_replicas_keeps_them_from_nobody(
    ksm: Ksm,
    start: StartTenant,
    tmp_path: Path,
    then: Callable[[], object],
    stacked: int,
) -> None:
    """Neither by a child that ksmd does not know of, though it takes long to find what
    he has, if that is not too much, nor by his mmap_lock."""
    mib, equal = (1, LONG_EQUAL) if stacked else (MIB, 100)
    tenants = [
        start(f"vm-{node}", node, mib=mib, equal=equal, private=100 - equal)
        for node in (0, 1)
    ]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    with numa.running_on(1 - NODE), sharing(ksm, tenants, then, stacked) as sharers:
        replicate(ksm, tenants)
        ksm.set_speed(RARELY)
        with ExitStack() as stack:
            for sharer in sharers:
                answer = sharer.next()
                if then is fork_and_wait:
                    stack.callback(os.kill, int(answer), signal.SIGKILL)
            assert NODE in ksm.replicas()
            got = take_all(a_job(start), tenants, tmp_path / "told")
            assert NODE not in ksm.replicas(), got
            model.check_audit()
            fold(ksm)
            usual = take_all(a_job(start), tenants, tmp_path / "told")
    print(got, usual)
    assert abs(got / usual - 1) <= WITHIN


@pytest.mark.slow
def test_busy_replicas_put_off_no_kill_for_long(ksm: Ksm, start: StartTenant) -> None:
    """Who forks all the time has the locks that folding takes, and has them while he
    waits for memory himself: nobody waits until the last replica is folded."""
    tenants = [start(f"vm-{n}", n, mib=4, equal=100, private=0) for n in (0, 1)]
    pages = tenants[0].equal_pages
    ksm.merge(2 * pages)
    with numa.running_on(1 - NODE), ExitStack() as stack:
        forking = stack.enter_context(
            family(tenants[0], NODE, areas=FORKED_AREAS, forkers=FORKERS)
        )
        ksm.write("replica_percent", 100)
        ksm.write("look_cpu_permille", 1000)
        with reading(tenants[0]), reading(tenants[1]):
            wait_for(ksm, pages)
            before = ksm.merged()
            forking.next()
            ksm.merge(before + pages)
            ksm.set_speed(RARELY)
            ksm.write("look_cpu_permille", 1)
        stack.callback(os.killpg, int(forking.next()), signal.SIGKILL)
        taker = stack.enter_context(puppet(take_everything))
        kills = oom_kills()
        taker.begin()
        wait.until(lambda: oom_kills() > kills, lambda: f"kill; {ksm.replicas()}")
        left = ksm.replicas()
        model.check_audit()
    print(left)
    assert left
    fold(ksm)
    model.check_intact(tenants)


@pytest.mark.slow
def test_dear_replicas_are_folded_before_somebody_is_killed(
    ksm: Ksm, start: StartTenant, tmp_path: Path
) -> None:
    """They take long, and nuksmd has just folded others of that kind: who only reclaims
    memory has to wait until it does that again, who would be killed has not."""
    tenants = [start(f"vm-{n}", n, mib=2, equal=100, private=0) for n in (0, 1)]
    ksm.merge(2 * tenants[0].equal_pages)
    with (
        numa.running_on(1 - NODE),
        sharing(ksm, tenants, fork_and_wait, DEAR) as sharers,
        ExitStack() as stack,
    ):
        replicate(ksm, tenants)
        ksm.set_speed(RARELY)
        for sharer in sharers:
            stack.callback(os.kill, int(sharer.next()), signal.SIGKILL)
        fill(start, LEFT_MIB, tmp_path / "filled")
        job = a_job(start)
        all_of_them = sum(ksm.replicas().values())
        most = (ksm.read("pages_sharing") + all_of_them) * HALF_OF_ALL // 100
        ksm.write("replica_percent", HALF_OF_ALL)
        wait.until(
            lambda: sum(ksm.replicas().values()) <= most,
            lambda: f"at most {most} replicas; there are {ksm.replicas()}",
        )
        before = ksm.replicas()
        take_all(job, tenants, tmp_path / "told")
        left = ksm.replicas()
        model.check_audit()
    print(before, left)
    assert left.get(NODE, 0) < before[NODE]


@pytest.mark.slow
def test_who_takes_long_to_fold_keeps_no_others_from_who_would_be_killed(
    ksm: Ksm, start: StartTenant, tmp_path: Path
) -> None:
    """Replicas that are found at once go first, wherever in the trees they are."""
    dear, cheap = (
        [
            start(f"{name}-{n}", n, mib=2, equal=100, private=0, seed=seed)
            for n in (0, 1)
        ]
        for seed, name in enumerate(("dear", "cheap"), 1)
    )
    tenants = [*dear, *cheap]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))

    def near() -> list[int]:
        return [pair[NODE].equal_pages_by_node().get(NODE, 0) for pair in (dear, cheap)]

    with (
        numa.running_on(1 - NODE),
        sharing(ksm, dear, fork_and_wait, DEAR) as sharers,
        ExitStack() as stack,
    ):
        replicate(ksm, tenants)
        ksm.set_speed(RARELY)
        for sharer in sharers:
            stack.callback(os.kill, int(sharer.next()), signal.SIGKILL)
        take_all(a_job(start), tenants, tmp_path / "told")
        left = near()
        model.check_audit()
    fold(ksm)
    of_dear, of_cheap = (was - now for was, now in zip(left, near(), strict=True))
    print(of_dear, of_cheap)
    assert of_dear > 0
    assert of_cheap <= of_dear / 4


def test_what_is_merged_is_free(ksm: Ksm, start: StartTenant) -> None:
    """As the machine counts it, not KSM, whose own books take some of it."""
    tenants = [start(f"vm-{number}", 0, mib=MERGED_MIB) for number in range(2)]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    tenants.append(start("vm-2", 0, mib=MERGED_MIB))
    before = numa.free_mib(0)
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    saved_mib = tenants[2].equal_pages // 256
    wait.until(
        lambda: numa.free_mib(0) >= before + 0.75 * saved_mib,
        lambda: f"{saved_mib} MiB: {before} were free, {numa.free_mib(0)} are",
    )
