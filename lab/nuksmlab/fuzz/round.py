# SPDX-License-Identifier: GPL-2.0-only
"""One round: a seed decides what is set, started and done; then the model is asked.

Rounds begin with nothing merged and end with nothing left, so that each can be
repeated alone. The choices are the seed's; the moments at which the kernel's
threads come to work are not.
"""

import contextlib
import random
import time
from collections.abc import Iterator, Sequence

from nuksmlab import domains, shares, stress, wait
from nuksmlab.fuzz import model
from nuksmlab.fuzz.actions import AT_FIRST, BRISK, NOTHING_TRACKED, Actions
from nuksmlab.fuzz.crowd import Counts, Crowd
from nuksmlab.ksm import Ksm, process_stat
from nuksmlab.tenant import Spec, Tenant

REST_SECONDS = 0.5
SHARER_MIB = 8
FEW, MANY = 16, 256
# Not ksm_zero_pages, which drifts in stock, too: a fork takes over its parent's count
# before it takes the lock under which pages are copied.
LEFT_BEHIND = (
    *("pages_shared", "pages_sharing", "pages_unshared"),
    *("stable_node_chains", "stable_node_dups"),
)
CHECKSUM_BITS = stress.DEBUGFS / "nuksm" / "checksum_bits"
UNSURE = ("placed_no_room", "migrate_refused")


class Round:
    def __init__(self, seed: int, swap: stress.Swap, log: model.Log) -> None:
        self.choose = random.Random(seed)
        self.ksm = Ksm()
        self.counts = Counts()
        self.crowd = Crowd(self.choose, self.counts)
        self.actions = Actions(self.ksm, self.crowd, swap)
        self.sharers: list[Tenant] = []
        self.log = log

    def play(self, seconds: float) -> None:
        try:
            print("  round: everybody is started", flush=True)
            self.begin()
            print(f"  round: actions, for {seconds:.0f} s", flush=True)
            self.act(seconds)
            for check in (self.judge, self.share, self.take_apart):
                print(f"  round: {check.__name__.replace('_', ' ')}", flush=True)
                with self.counts.counted(f"({check.__name__})"):
                    check()
        finally:
            self.actions.windows.close()
            self.actions.faults.switch(False)
            for member in list(self.crowd.alive):
                self.crowd.kill(member)
            for sharer in self.sharers:
                sharer.process.kill()
                sharer.process.communicate()

    def begin(self) -> None:
        self.ksm.unmerge()
        for name, values in (NOTHING_TRACKED | AT_FIRST).items():
            self.actions.turn(name, values)
        if domains.exist():
            self.actions.change_default_domain()
        self.ksm.write_text("advisor_mode", "none")
        self.ksm.set_speed(BRISK)
        self.crowd.start(*self.crowd.size.first * self.crowd.nodes)
        for node in self.crowd.nodes:
            spec = Spec(f"share-{node}", node, SHARER_MIB, madvised=True)
            self.sharers.append(Tenant(spec))
        self.actions.widen()
        self.ksm.start()

    def act(self, seconds: float) -> None:
        """One action after the other, each as often as the others."""
        end = time.monotonic() + seconds
        # The rarest first, from behind, so that a short run has it on merged pages.
        deck = [self.actions.merge]
        if self.actions.memory.blocks:
            deck.insert(0, self.actions.offline_and_online)
        while time.monotonic() < end:
            if not deck:
                deck = [*self.actions.all(), self.leave_and_return]
                self.choose.shuffle(deck)
            deck.pop()()
            time.sleep(self.choose.random() * REST_SECONDS)

    def leave_and_return(self) -> None:
        """A sharer writes to some of its pages, and then what was there before."""
        sharer = self.choose.choice(self.sharers)
        with self.counts.counted("leave and return"):
            sharer.command(f"write {self.choose.choice((FEW, MANY))}")
            sharer.command("restore")

    def judge(self) -> None:
        """Everybody pauses: contents, the log, counters, mappings."""
        self.crowd.all_do("pause")
        self.actions.calm()
        self.crowd.all_do("verify")
        self.log.check()
        self.ksm.stop()
        model.check_audit()
        model.check_mappings(self.pids())
        self.judge_domains()

    def judge_domains(self) -> None:
        """What crosses a border is seen to end, and has ended two scans later."""
        if not domains.exist():
            return
        domains.check_apart(self.pids())
        self.ksm.write_text("advisor_mode", "none")
        self.ksm.set_speed(BRISK)
        for _ in range(2):
            self.ksm.scan_once()
        self.ksm.stop()
        if left := [pid for pid in self.pids() if domains.left_by(pid) is not None]:
            raise model.WrongError(f"processes that have not left their domain: {left}")
        domains.check_apart(self.pids())
        # What was read back goes to slots in swap again, which are nobody else's.
        for member in self.crowd.alive:
            with contextlib.suppress(OSError):  # the kernel says that it found less
                member.cgroup.reclaim(member.mib)
        domains.check_apart(self.pids())
        self.counts.done["domains judged"] += 1

    def pids(self) -> list[int]:
        """Of all who may have merged pages, but for those who are ending."""
        fuzzers = [member.fuzzer.pid for member in self.crowd.alive]
        return [*fuzzers, *(sharer.pid for sharer in self.sharers)]

    def share(self) -> None:
        """Whatever was before: who shares pages now, shares them as agreed."""
        if not self.ksm.has_engine() or not self.ksm.read("merge_across_nodes"):
            return
        if self.ksm.read("max_page_sharing") <= len(self.sharers):
            return
        for member in list(self.crowd.alive):
            self.crowd.end(member)
        self.ksm.write_text("placement", "fair")
        self.ksm.write("look_cpu_permille", 5)
        self.ksm.write("replica_percent", 0)
        self.ksm.write_text("advisor_mode", "none")
        # With it, equal pages that are looked at in different scans never meet.
        self.ksm.write("smart_scan", 0)
        before = {name: self.ksm.read(name) for name in UNSURE}
        # What ksmd remembers of some sharers' pages, and not of others', is use.
        self.ksm.unmerge()
        # Pages whose checksums collide have the same lot.
        stress.put(CHECKSUM_BITS, 32)
        at_home = [self.go_home(sharer) for sharer in self.sharers]
        self.ksm.merge(sum(sharer.equal_pages for sharer in self.sharers))
        sure = before == {name: self.ksm.read(name) for name in UNSURE}
        if sure and all(at_home):
            self.counts.done["shares judged"] += 1
            for sharer in self.sharers:
                check_shares(sharer, self.crowd.nodes)

    def go_home(self, sharer: Tenant) -> bool:
        """Its own copies of all pages, on its node, whoever moved them before."""
        home = sharer.spec.node
        sharer.command(f"write {sharer.equal_pages}")
        for node in self.crowd.nodes:
            if node != home:
                stress.migrate(sharer.pid, node, home)
        sharer.command("restore")
        return sharer.equal_pages_by_node() == {home: sharer.equal_pages}

    def left(self) -> dict[str, int]:
        return {name: self.ksm.read(name) for name in LEFT_BEHIND}

    def nothing_is_left(self) -> bool:
        """Of what KSM had; what it could not take apart before, it tries again."""
        if any(self.left().values()):
            self.ksm.unmerge()
        return not any(self.left().values())

    def take_apart(self) -> None:
        """All contents are right to the end, and KSM's books are empty.

        Who is just ending is none of KSM's any more, but has pages until he is gone. As
        long as one of a tree's is mapped, stock's KSM keeps the others there, too.
        """
        self.ksm.unmerge()
        for pid in self.pids():
            if merged := process_stat(pid).get("ksm_merging_pages"):
                raise model.WrongError(f"process {pid} has {merged} merged pages")
        wait.until(self.nothing_is_left, lambda: f"empty books: {self.left()}")
        self.crowd.all_do("verify")
        for sharer in self.sharers:
            if sharer.bad_pages():
                raise model.WrongError(f"{sharer.spec}: not what it wrote")
        model.check_audit()
        for member in list(self.crowd.alive):
            self.crowd.end(member)
        for sharer in self.sharers:
            sharer.quit()
        model.check_lost()
        self.log.check()


def check_shares(sharer: Tenant, nodes: Sequence[int]) -> None:
    """Each node has one sharer: each has the same part of the pages."""
    if why := shares.off(sharer, [1 / len(nodes)] * len(nodes)):
        raise model.WrongError(why)


def seeds(first: int) -> Iterator[int]:
    """The first as given, and those that follow from it."""
    choose = random.Random(first)
    yield first
    while True:
        yield choose.getrandbits(32)
