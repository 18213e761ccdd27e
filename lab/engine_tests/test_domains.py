# SPDX-License-Identifier: GPL-2.0-only
"""Pages are merged within a domain, and by no path across the border of two."""

import contextlib
import mmap
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nuksmlab import domains, stress, wait
from nuksmlab.area import address_of, child, equal_to
from nuksmlab.domains import Group, group
from nuksmlab.fuzz import model
from nuksmlab.ksm import Ksm, process_stat
from nuksmlab.looks import readings
from nuksmlab.replicas import wait_for
from nuksmlab.tenant import ANYWHERE, Spec, StartTenant, Tenant, lend

MIB = 2
PAGES = MIB * 256
NOBODY = 65534

pytestmark = pytest.mark.skipif(
    not domains.exist() or not Path("/sys/devices/system/node").exists(),
    reason="this kernel has no merge domains, or no nodes",
)


@pytest.fixture(autouse=True)
def cgroups() -> None:
    stress.account_memory()


@pytest.fixture
def groups() -> Iterator[Callable[[str], Group]]:
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(group(name))


def tenants_in(
    start: StartTenant, cgroup: Group, count: int = 2, mib: int = MIB
) -> list[Tenant]:
    """On two nodes in turn, if there are so many: pairs of equal ones on each."""
    nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))
    made = []
    for n in range(count):
        node = n % 2 if nodes > 1 else ANYWHERE
        made.append(start(f"{cgroup.path.name}-{n}", node, mib=mib))
        cgroup.take(made[-1].pid)
    return made


def domains_of(tenants: list[Tenant]) -> dict[int, int]:
    return {tenant.pid: domains.domain_of(tenant.pid) for tenant in tenants}


def check_apart(tenants: list[Tenant]) -> None:
    """Nothing is merged across a border, now that all have read all their pages."""
    model.check_intact(tenants)
    assert domains.crossings(domains_of(tenants)) == []


def equal_frames(tenant: Tenant) -> set[int]:
    return frames_at(tenant.pid, int(tenant.facts["equal_at"], 16), tenant.equal_pages)


def frames_at(pid: int, address: int, pages: int) -> set[int]:
    return set(model.frames(pid, address, pages))


def saved(ksm: Ksm, pages: int, domains: int, each: int) -> None:
    """Exactly what is saved if `each` tenants share the same pages in some domains."""
    assert ksm.read("pages_shared") == domains * pages
    assert ksm.read("pages_sharing") == domains * (each - 1) * pages


@pytest.mark.parametrize("index", ["checksum", "content"])
@pytest.mark.parametrize("across", [1, 0])
def test_who_shares_is_of_one_domain(
    ksm: Ksm,
    start: StartTenant,
    groups: Callable[[str], Group],
    index: str,
    across: int,
) -> None:
    ksm.write_text("index", index)
    ksm.write("merge_across_nodes", across)
    try:
        tenants = []
        for name, domain in (("one", 1), ("two", 2), ("own", "own"), ("none", None)):
            cgroup = groups(name)
            if domain is not None:
                cgroup.give(domain)
            tenants += tenants_in(start, cgroup, 4)
        ksm.merge(len(tenants) * PAGES)
        check_apart(tenants)
        if across:
            saved(ksm, PAGES, domains=4, each=4)
        assert domains.domain_of(tenants[0].pid) == 1
        assert domains.domain_of(tenants[12].pid) == domains.SHARED
    finally:
        ksm.unmerge()
        ksm.write("merge_across_nodes", 1)


def test_equal_numbers_are_one_domain(
    ksm: Ksm, start: StartTenant, groups: Callable[[str], Group]
) -> None:
    tenants = []
    for name in ("left", "right"):
        cgroup = groups(name)
        cgroup.give(7)
        tenants += tenants_in(start, cgroup)
    ksm.merge(4 * PAGES)
    saved(ksm, PAGES, domains=1, each=4)


def test_each_cgroup_is_its_own_by_default_if_asked(
    ksm: Ksm, start: StartTenant, groups: Callable[[str], Group]
) -> None:
    assert ksm.read_text("default_domain") == "[shared] own"
    ksm.write_text("default_domain", "own")
    try:
        assert ksm.read_text("default_domain") == "shared [own]"
        open_to_all = groups("shared")
        open_to_all.give(domains.SHARED)
        tenants = [
            tenant
            for cgroup in (groups("a"), groups("b"), open_to_all)
            for tenant in tenants_in(start, cgroup)
        ]
        ksm.merge(6 * PAGES)
        check_apart(tenants)
        saved(ksm, PAGES, domains=3, each=2)
    finally:
        ksm.write_text("default_domain", "shared")


def test_children_inherit(
    ksm: Ksm, start: StartTenant, groups: Callable[[str], Group]
) -> None:
    """As a guest's scope has cgroups below it, and a pod's has its containers'."""
    parent = groups("pod")
    parent.give("own")
    parent.divide()
    with group("left", parent) as left, group("right", parent) as right:
        tenants = tenants_in(start, left) + tenants_in(start, right)
        ksm.merge(4 * PAGES)
        saved(ksm, PAGES, domains=1, each=4)
        right.give("own")
        ksm.set_speed({"pages_to_scan": 100000, "sleep_millisecs": 0})
        for tenant in tenants[2:]:
            domains.wait_left(tenant.pid)
        check_apart(tenants)
        wait.until(
            lambda: ksm.read("pages_shared") == 2 * PAGES,
            lambda: f"two domains; {ksm.counters()}",
        )
        saved(ksm, PAGES, domains=2, each=2)
        for tenant in tenants:
            tenant.quit()


@pytest.mark.parametrize("moves", ["process", "cgroup"])
def test_sharing_ends_with_the_second_scan(
    ksm: Ksm, start: StartTenant, groups: Callable[[str], Group], moves: str
) -> None:
    old, other, new = groups("old"), groups("other"), groups("new")
    tenants = tenants_in(start, old) + tenants_in(start, other)
    new.give(5)
    stranger = tenants_in(start, new, 1)
    ksm.merge(4 * PAGES)
    before = ksm.read("domain_unmerged")
    ksm.rest()
    leaver = tenants[3]
    if moves == "process":
        new.take(leaver.pid)
        leavers = [leaver]
    else:
        other.give(5)
        leavers = tenants[2:]
    assert domains.domain_of(leaver.pid) == 5
    assert domains.left_by(leaver.pid) == domains.SHARED
    # And what finds pages that cross a border finds these.
    assert len(domains.crossings(domains_of(tenants))) == PAGES
    for _ in "12":
        ksm.scan_once()
    assert [domains.left_by(tenant.pid) for tenant in leavers] == [None] * len(leavers)
    check_apart([*tenants, *stranger])
    assert ksm.read("domain_unmerged") - before == len(leavers) * PAGES
    ksm.merge(5 * PAGES)
    check_apart([*tenants, *stranger])
    saved_there = (len(leavers), len(tenants) - 1 - len(leavers))
    assert ksm.read("pages_shared") == 2 * PAGES
    assert ksm.read("pages_sharing") == sum(saved_there) * PAGES


def test_who_cannot_leave_is_seen_and_leaves_later(
    ksm: Ksm, start: StartTenant, groups: Callable[[str], Group]
) -> None:
    """His cgroup has no memory for pages of his own."""
    old, new = groups("old"), groups("new")
    new.give(5)
    tenants = tenants_in(start, old)
    leaver = tenants[1]
    ksm.merge(2 * PAGES)
    ksm.rest()
    new.take(leaver.pid)
    stress.put(new.path / "memory.swap.max", 0)
    stress.put(new.path / "memory.max", 0)
    stress.put(Path(f"/proc/{leaver.pid}/oom_score_adj"), -1000)
    for _ in "123":
        ksm.scan_once()
    assert domains.left_by(leaver.pid) == domains.SHARED
    new.limit(None)
    for _ in "12":
        ksm.scan_once()
    assert domains.left_by(leaver.pid) is None
    check_apart(tenants)


@pytest.fixture
def tenant(start: StartTenant) -> Tenant:
    return start("tenant", mib=MIB)


@pytest.fixture
def area(tenant: Tenant) -> Iterator[mmap.mmap]:
    """This process has the tenant's pages, too; both are of nobody's domain."""
    area = equal_to(tenant)
    contents = area[:]
    yield area
    assert area[:] == contents


def test_a_child_elsewhere_gets_pages_of_its_own(
    ksm: Ksm, groups: Callable[[str], Group], tenant: Tenant, area: mmap.mmap
) -> None:
    elsewhere = groups("elsewhere")
    elsewhere.give(5)
    ksm.merge(2 * PAGES)
    ksm.rest()
    with child(area) as pid:
        elsewhere.take(pid)
        assert domains.domain_of(pid) == 5
        here = address_of(area)
        assert frames_at(pid, here, PAGES) == equal_frames(tenant)
        for _ in "12":
            ksm.scan_once()
        assert not frames_at(pid, here, PAGES) & equal_frames(tenant)
        assert frames_at(os.getpid(), here, PAGES) == equal_frames(tenant)
        assert domains.left_by(pid) is None
        model.check_intact([tenant])


def test_who_is_leaving_hands_nothing_on_to_its_children(
    ksm: Ksm, groups: Callable[[str], Group], tenant: Tenant, area: mmap.mmap
) -> None:
    """Each of them would be new to ksmd, and each have children before it comes."""
    elsewhere = groups("elsewhere")
    elsewhere.give(5)
    ksm.merge(2 * PAGES)
    ksm.rest()
    here = address_of(area)
    go, tell = os.pipe()
    forked, told = os.pipe()
    leaver = os.fork()
    if leaver == 0:
        os.read(go, 1)
        with child(area) as grandchild:
            os.write(told, f"{grandchild}\n".encode())
            os.read(go, 1)
        os._exit(0)
    try:
        assert frames_at(leaver, here, PAGES) == equal_frames(tenant)
        elsewhere.take(leaver)
        os.write(tell, b".")
        grandchild = int(os.read(forked, 16))
        assert not frames_at(grandchild, here, PAGES) & equal_frames(tenant)
        os.write(tell, b".")
    except BaseException:
        os.kill(leaver, signal.SIGKILL)
        raise
    finally:
        status = os.waitpid(leaver, 0)[1]
    assert status == 0, "contents"


def test_a_page_that_two_domains_have_is_not_merged(
    ksm: Ksm, groups: Callable[[str], Group], tenant: Tenant, area: mmap.mmap
) -> None:
    """By a fork, which is no merging. What is merged elsewhere leaves it alone."""
    elsewhere = groups("elsewhere")
    elsewhere.give(5)
    with child(area) as pid:
        elsewhere.take(pid)
        before = ksm.read("domain_unmerged")
        for _ in range(6):
            ksm.scan_once()
            assert domains.crossings({tenant.pid: 0, pid: 5}) == []
        assert ksm.read("domain_unmerged") == before
    ksm.merge(2 * PAGES)
    saved(ksm, PAGES, domains=1, each=2)


@pytest.fixture
def paged_out(
    ksm: Ksm, groups: Callable[[str], Group], swap: Path, tmp_path: Path
) -> Iterator[tuple[list[Tenant], Group, Group]]:
    """Two tenants whose merged pages are paged out, but held by somebody.

    The second one has left their cgroup for another one, which is in domain 5, since.
    """
    old, new = groups("old"), groups("new")
    new.give(5)
    assert swap.exists()
    with ExitStack() as stack:
        tenants = [
            # Their memory is their cgroup's, so that it can be paged out.
            stack.enter_context(Tenant(Spec(name, ANYWHERE, 1), old.prefix()))
            for name in ("stays", "leaves")
        ]
        ksm.merge(2 * tenants[0].equal_pages)
        ksm.rest()
        held = lend(tenants[0], tmp_path / "fifo")

        def are_out() -> bool:
            with contextlib.suppress(OSError):  # the kernel says that it found less
                old.reclaim(64)
            return not any(equal_frames(tenant) for tenant in tenants)

        wait.until(are_out, lambda: "paging out")
        new.take(tenants[1].pid)
        yield tenants, old, new
        os.close(held)


def test_what_comes_back_from_swap_is_of_its_readers_domain(
    paged_out: tuple[list[Tenant], Group, Group],
) -> None:
    """A merged page that somebody holds is not gone when it has been paged out."""
    check_apart(paged_out[0])


def test_who_goes_to_and_fro_reads_back_no_merged_page(
    ksm: Ksm, paged_out: tuple[list[Tenant], Group, Group]
) -> None:
    """ksmd knows it in the other domain, and would not see that it leaves again."""
    tenants, old, new = paged_out
    stays, returns = tenants
    stress.put(Path(f"/proc/{returns.pid}/oom_score_adj"), -1000)
    stress.put(new.path / "memory.max", 0)  # else ksmd would read them back for it
    for _ in "12":
        ksm.scan_once()
    ksm.stop()
    assert equal_frames(returns) == set()
    old.take(returns.pid)
    model.check_intact(tenants)  # all of their pages are read
    assert not equal_frames(stays) & equal_frames(returns)


def test_copies_are_of_their_pages_domain(
    ksm: Ksm, start: StartTenant, groups: Callable[[str], Group]
) -> None:
    """Replicas, and what max_page_sharing makes."""
    if not (ksm.root / "replica_percent").exists():
        pytest.skip("this kernel has one node")
    tenants = []
    for name, domain in (("one", 1), ("two", 2)):
        cgroup = groups(name)
        cgroup.give(domain)
        tenants += tenants_in(start, cgroup)
    ksm.merge(4 * PAGES)
    ksm.write("look_cpu_permille", 1000)
    ksm.write("replica_percent", 100)
    with readings(tenants):
        wait_for(ksm, 2 * PAGES)
        check_apart(tenants)
    ksm.write("replica_percent", 0)
    wait_for(ksm, 0)
    check_apart(tenants)


def test_chains_are_of_one_domain(
    ksm: Ksm, start: StartTenant, groups: Callable[[str], Group]
) -> None:
    before = ksm.read("max_page_sharing")
    ksm.write("max_page_sharing", 2)
    try:
        tenants = []
        for name, domain in (("one", 1), ("two", 2)):
            cgroup = groups(name)
            cgroup.give(domain)
            tenants += tenants_in(start, cgroup, 4)
        ksm.merge(8 * PAGES)
        check_apart(tenants)
        assert ksm.read("stable_node_chains") == 2 * PAGES
        assert ksm.read("pages_shared") == 4 * PAGES
    finally:
        ksm.unmerge()
        ksm.write("max_page_sharing", before)


@pytest.mark.parametrize("wrong", ["", "-1", "1x", "2147483648", "shared", "own 1"])
def test_what_is_no_domain_is_refused(
    groups: Callable[[str], Group], wrong: str
) -> None:
    cgroup = groups("refused")
    cgroup.give(3)
    with pytest.raises(OSError):
        cgroup.give(wrong)
    assert cgroup.given() == "3"


def test_a_domain_is_read_as_it_was_written(groups: Callable[[str], Group]) -> None:
    cgroup = groups("read")
    assert cgroup.given() == "inherit"
    for domain in ("own", "0", "2147483647", "inherit"):
        cgroup.give(domain)
        assert cgroup.given() == domain
    assert not (stress.CGROUPS / domains.FILE).exists()


@contextmanager
def as_nobody() -> Iterator[None]:
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def test_who_a_cgroup_was_delegated_to_does_not_choose(
    groups: Callable[[str], Group],
) -> None:
    """He would join the domain of others. Nor does root write what he has opened."""
    cgroup = groups("delegated")
    file = cgroup.path / domains.FILE
    os.chown(file, NOBODY, NOBODY)
    with as_nobody():
        opened = os.open(file, os.O_WRONLY)
        with pytest.raises(PermissionError):
            os.write(opened, b"7")
    with pytest.raises(PermissionError):
        os.write(opened, b"7")
    os.close(opened)
    assert cgroup.given() == "inherit"


def test_no_tenant_is_told_of_domains(start: StartTenant) -> None:
    """It might learn who is kept apart from whom."""
    tenant = start("tenant", mib=1)
    assert "ksm_domain" in process_stat(tenant.pid)
    told = subprocess.run(
        ["cat", "/proc/self/ksm_stat"],
        user=NOBODY,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "ksm_merging_pages" in told.stdout
    assert "ksm_domain" not in told.stdout
    with group("secret") as secret:
        secret.give(5)
        file = secret.path / domains.FILE
        told = subprocess.run(
            ["cat", str(file)], user=NOBODY, check=False, capture_output=True, text=True
        )
        assert (told.stdout, told.returncode) == ("", 1)


def test_the_default_is_for_who_administers_the_machine(ksm: Ksm) -> None:
    """Not for any process of root's."""
    file = ksm.root / "default_domain"
    without = ["setpriv", "--bounding-set=-sys_admin"]
    done = subprocess.run(
        [*without, "dd", f"of={file}"],
        input="own",
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "not permitted" in done.stderr
    assert ksm.read_text("default_domain") == "[shared] own"
