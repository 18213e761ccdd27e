# SPDX-License-Identifier: GPL-2.0-only
"""ksmd asks which pages are used. So do others: what they see may not change.

The tests' own process runs on the tenant's CPU: each time the tenant goes on, the
CPU has forgotten its translations, and use of a page sets the accessed bit again.
"""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from nuksmlab import numa, stress, wait
from nuksmlab.fuzz import model
from nuksmlab.ksm import Ksm
from nuksmlab.looks import look
from nuksmlab.tenant import Spec, StartTenant, Tenant

pytestmark = pytest.mark.needs(nodes=2)

NODE = 0
MIB = 1
PAGES = MIB * 256
WORD = 8
MOST = 0.9
IDLE = Path("/sys/kernel/mm/page_idle/bitmap")
GENERATIONS = Path("/sys/kernel/debug/lru_gen")
DAMON = Path("/sys/kernel/mm/damon/admin/kdamonds")


@pytest.fixture(autouse=True)
def one_cpu() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, numa.cpus(NODE))
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture
def tenant(start: StartTenant) -> Tenant:
    """Offered to KSM, and equal to nobody's."""
    return start("alone", NODE, mib=MIB, equal=0, private=100)


def frames(tenant: Tenant, kind: str = "private") -> list[int]:
    first = int(tenant.facts[f"{kind}_at"], 16)
    return model.frames(tenant.pid, first, int(tenant.facts[kind]))


def mark_idle(pages: list[int]) -> None:
    with IDLE.open("r+b", buffering=0) as bitmap:
        for word in {page // 64 for page in pages}:
            bits = sum(1 << page % 64 for page in pages if page // 64 == word)
            bitmap.seek(word * WORD)
            bitmap.write(bits.to_bytes(WORD, "little"))


def idle(pages: list[int]) -> int:
    """How many of them are called idle."""
    with IDLE.open("rb", buffering=0) as bitmap:

        def is_idle(page: int) -> bool:
            bitmap.seek(page // 64 * WORD)
            return bool(int.from_bytes(bitmap.read(WORD), "little") >> page % 64 & 1)

        return sum(map(is_idle, pages))


def test_pages_that_were_read_are_not_idle(ksm: Ksm, tenant: Tenant) -> None:
    pages = frames(tenant)
    assert len(pages) == int(tenant.facts["private"])
    ksm.stop()
    mark_idle(pages)
    assert idle(pages) == len(pages), "nobody has used them yet"
    tenant.command("touch")
    ksm.scan_once()
    assert idle(pages) == 0


def test_pages_that_nobody_read_are_idle(ksm: Ksm, tenant: Tenant) -> None:
    pages = frames(tenant)
    ksm.scan_once()
    mark_idle(pages)
    ksm.scan_once()
    assert idle(pages) == len(pages)


def test_merged_pages_are_idle_until_they_are_read(
    ksm: Ksm, start: StartTenant
) -> None:
    """Looks clear their accessed bits, and have to tell."""
    tenants = [start(f"vm-{number}", NODE, mib=MIB) for number in range(2)]
    ksm.write("look_cpu_permille", 1000)
    ksm.merge(2 * PAGES)
    pages = frames(tenants[0], "equal")
    mark_idle(pages)
    for _ in "12":
        look(ksm)
    assert idle(pages) == PAGES
    tenants[0].command("touch")
    for _ in "12":
        look(ksm)
    assert idle(pages) == 0


@pytest.fixture
def generations() -> Iterator[None]:
    switch = Path("/sys/kernel/mm/lru_gen/enabled")
    before = switch.read_text()
    stress.put(switch, "y")
    yield
    stress.put(switch, int(before, 16))


class Generations:
    """Of a cgroup's anonymous pages on the node."""

    def __init__(self, cgroup: stress.Cgroup) -> None:
        self.cgroup = cgroup

    def _pages(self) -> dict[int, int]:
        number, result, here, this_node = 0, {}, False, False
        for line in GENERATIONS.read_text().splitlines():
            fields = line.split()
            if fields[0] == "memcg":
                here = line.endswith(f"/{self.cgroup.path.name}")
                number = int(fields[1]) if here else number
            elif fields[0] == "node":
                this_node = int(fields[1]) == NODE
            elif here and this_node:
                result[int(fields[0])] = int(fields[2])
        self.number = number
        return result

    def age(self) -> None:
        """All page tables are looked at, and a younger generation begins."""
        youngest = max(self._pages())
        stress.put(GENERATIONS, f"+ {self.number} {NODE} {youngest} 200 1")

    def used(self) -> int:
        """Pages that were used before the last aging but one."""
        pages = self._pages()
        return sum(pages[seq] for seq in sorted(pages)[-2:])


@pytest.fixture
def limited() -> Iterator[stress.Cgroup]:
    cgroup = stress.Cgroup("generations")
    yield cgroup
    cgroup.end()


@pytest.mark.usefixtures("generations")
def test_reclaim_finds_what_was_used_young(ksm: Ksm, limited: stress.Cgroup) -> None:
    """Pages that are new: newer kernels wait for their second use."""
    spec = Spec("alone", NODE, MIB, equal=0, private=100)

    def used(between: Callable[[], None]) -> int:
        ksm.stop()
        with Tenant(spec, limited.prefix()) as tenant:
            assert int(tenant.facts["private"]) == PAGES
            ages = Generations(limited)
            for _ in range(2):
                tenant.command("touch")
                between()
                ages.age()
            return ages.used()

    unscanned = used(lambda: None)
    assert unscanned >= PAGES
    assert used(ksm.scan_once) >= MOST * unscanned


# Turns of use and a scan in one of DAMON's samples, and samples in an interval.
TURNS = 5
SAMPLES = 10
REST_SECONDS = 0.02


class Damon:
    """One monitor, of a tenant's pages."""

    def __init__(self, tenant: Tenant, sample_us: int) -> None:
        self.start = int(tenant.facts["private_at"], 16)
        self.end = self.start + int(tenant.facts["private"]) * model.PAGE
        stress.put(DAMON / "nr_kdamonds", 1)
        stress.put(DAMON / "0" / "contexts" / "nr_contexts", 1)
        context = DAMON / "0" / "contexts" / "0"
        intervals = context / "monitoring_attrs" / "intervals"
        self.scheme = context / "schemes" / "0"
        stress.put(context / "operations", "fvaddr")
        stress.put(intervals / "aggr_us", SAMPLES * sample_us)
        stress.put(intervals / "sample_us", sample_us)
        stress.put(context / "targets" / "nr_targets", 1)
        target = context / "targets" / "0"
        stress.put(target / "pid_target", tenant.pid)
        stress.put(target / "regions" / "nr_regions", 1)
        stress.put(target / "regions" / "0" / "start", self.start)
        stress.put(target / "regions" / "0" / "end", self.end)
        stress.put(context / "schemes" / "nr_schemes", 1)
        stress.put(self.scheme / "action", "stat")
        for name in ("sz", "nr_accesses", "age"):
            stress.put(self.scheme / "access_pattern" / name / "max", 2**32 - 1)
        stress.put(DAMON / "0" / "state", "on")

    def accesses(self) -> float:
        """Of the samples of one more interval, how many found an access."""
        stress.put(DAMON / "0" / "state", "update_schemes_tried_regions")
        seen = 0
        for region in (self.scheme / "tried_regions").glob("[0-9]*"):
            start, end, accesses = (
                int((region / name).read_text())
                for name in ("start", "end", "nr_accesses")
            )
            seen += accesses * (end - start)
        return seen / (self.end - self.start) / SAMPLES

    def off(self) -> None:
        stress.put(DAMON / "0" / "state", "off")
        stress.put(DAMON / "nr_kdamonds", 0)


@contextmanager
def damon(tenant: Tenant, sample_seconds: float) -> Iterator[Damon]:
    damon = Damon(tenant, round(sample_seconds * 1e6))
    try:
        yield damon
    finally:
        damon.off()


def test_damon_sees_what_is_used(ksm: Ksm, tenant: Tenant) -> None:
    """The pages are used all the time, and ksmd comes by after each use.

    With `first` it takes as long, and takes nothing from the page tables. Only where
    each sample has turns in it can DAMON see one in each: it has a sample in the time
    that this machine takes for some. What it saw while one took longer says nothing.
    """

    def turn() -> float:
        began = time.monotonic()
        tenant.command("touch")
        ksm.scan_once()
        time.sleep(REST_SECONDS)
        return time.monotonic() - began

    def seen(placement: str) -> float:
        ksm.write_text("placement", placement)
        end = time.monotonic() + wait.HANG_SECONDS
        while time.monotonic() < end:
            sample = sum(turn() for _ in range(TURNS))
            with damon(tenant, sample) as monitor, ThreadPoolExecutor(1) as pool:
                monitor.accesses()
                asked = pool.submit(monitor.accesses)
                turns = [turn()]
                while not asked.done():
                    turns.append(turn())
                if max(turns) < sample:
                    return asked.result()
            print(f"a turn took {max(turns):.3f} s, a sample {sample:.3f}: once more")
        raise wait.DeadlineError("no sample was longer than all turns in it")

    unheard = seen("first")
    assert unheard >= MOST
    assert seen("fair") >= MOST * unheard
