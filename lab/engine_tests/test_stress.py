# SPDX-License-Identifier: GPL-2.0-only
"""Everything at once, for a while: no content may change, and nothing may be left.

What the kernel itself finds wrong meanwhile is in its log, which is searched
when the machine ends. The choices can be repeated by their seed; the moments at
which the kernel's threads come to work cannot.
"""

import errno
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nuksmlab import program, stress
from nuksmlab.crowd import Counts, Crowd
from nuksmlab.ksm import FAST, Ksm

SECONDS = float(os.environ.get("NUKSM_STRESS_SECONDS", "180"))
SEED = int(os.environ.get("NUKSM_STRESS_SEED", random.SystemRandom().getrandbits(32)))
VERIFY_SECONDS = 20.0
READ_SECONDS = 0.2
SWAP_MIB = 128

LEAST_PER_NODE = 2
MOST_PER_NODE = 4

ANY_TIME: dict[str, Sequence[str | int]] = {
    "smart_scan": (0, 1),
    "use_zero_pages": (0, 1),
    "pages_to_scan": (1000, 10000, 100000),
    "sleep_millisecs": (0, 1, 20),
    "advisor_mode": ("none", "scan-time"),
    "placement": ("first", "fair", "priority"),
}
NOTHING_TRACKED: dict[str, Sequence[str | int]] = {
    "merge_across_nodes": (0, 1, 1),
    "max_page_sharing": (2, 8, 256),
    "index": ("content", "checksum"),
    "kib_per_tree": (0, 16, 102400),
    "checksum_bits": (4, 32),
}
LEFT_BEHIND = (
    *("pages_shared", "pages_sharing", "pages_unshared"),
    *("stable_node_chains", "stable_node_dups", "ksm_zero_pages"),
)


class Actions:
    """What is done to the machine while the tenants do what they were told."""

    def __init__(self, ksm: Ksm, crowd: Crowd, choose: random.Random) -> None:
        self.ksm = ksm
        self.crowd = crowd
        self.choose = choose
        self.counted = crowd.counts.counted
        self.swap = stress.Swap(SWAP_MIB)
        self.faults = stress.Faults()
        self.memory = stress.most_movable_memory(crowd.nodes)
        self.offlined = 0

    def all(self) -> list[Callable[[], None]]:
        actions = [
            *(self.start_tenant, self.start_tenant, self.end_tenant, self.renice),
            *(self.run, self.knob, self.knob, self.structure, self.rebuild),
            *(self.merge, self.merge, self.merge),
            *(self.place, self.migrate, self.compact, self.split, self.inject_faults),
            *(self.limit, self.limit, self.reclaim, self.reclaim),
            *(self.swap_off_and_on, self.generations),
        ]
        if self.memory.blocks:
            actions.append(self.offline_and_online)
        return actions

    def start_tenant(self) -> None:
        nodes = self.crowd.nodes
        if len(self.crowd.alive) < MOST_PER_NODE * len(nodes):
            with self.counted("start a tenant"):
                self.crowd.start(self.choose.choice(nodes))

    def end_tenant(self) -> None:
        if len(self.crowd.alive) <= LEAST_PER_NODE * len(self.crowd.nodes):
            return
        member = self.crowd.any()
        if self.choose.random() < 0.5:
            with self.counted("kill a tenant"):
                self.crowd.kill(member)
            return
        self.crowd.receive_all()
        if member in self.crowd.alive:
            self.crowd.send(member, "verify")
            self.crowd.receive_all()
        if member in self.crowd.alive:
            with self.counted("end a tenant"):
                self.crowd.quit(member)

    def renice(self) -> None:
        member = self.crowd.any()
        with self.counted("renice a tenant"), self.crowd.unless_out_of_memory(member):
            member.tenant.renice(self.choose.randint(-20, 19))

    def run(self) -> None:
        value = self.choose.choice((0, 1, 1, 2))
        with self.counted(f"run {value}", errno.ENOMEM):
            self.ksm.write("run", value)

    def knob(self) -> None:
        name = self.choose.choice(list(ANY_TIME))
        owned_by_advisor = (errno.EINVAL,) if name == "pages_to_scan" else ()
        self.turn(name, ANY_TIME[name], *owned_by_advisor)

    def turn(self, name: str, values: Sequence[str | int], *legitimate: int) -> None:
        value = self.choose.choice(values)
        if name == "checksum_bits":
            path = stress.DEBUGFS / "nuksm" / name
        else:
            path = self.ksm.root / name
        with self.counted(f"{name} {value}", *legitimate):
            stress.put(path, value)

    def structure(self) -> None:
        """Allowed only while nothing is tracked; and now?"""
        name = self.choose.choice(list(NOTHING_TRACKED))
        self.turn(name, NOTHING_TRACKED[name], errno.EBUSY)

    def rebuild(self) -> None:
        """Everything taken apart, to be merged anew in another way."""
        with self.counted("run 2", errno.ENOMEM):
            self.ksm.write("run", 2)
        for name, values in NOTHING_TRACKED.items():
            self.turn(name, values, errno.EBUSY)
        with self.counted("run 1"):
            self.ksm.write("run", 1)

    def merge(self) -> None:
        """Long enough for what holds still to be merged."""
        with self.counted("merge"):
            self.ksm.write_text("advisor_mode", "none")
            self.ksm.set_speed(FAST)
            self.ksm.start()
            self.ksm.wait_scans(3)

    def place(self) -> None:
        with self.counted("nuksm place"):
            program.place_once(self.choose.choice(("fair", "priority")))

    def migrate(self) -> None:
        source, target = self.choose.sample(self.crowd.nodes, 2)
        member = self.crowd.any()
        with self.counted("migrate_pages"), self.crowd.unless_out_of_memory(member):
            stress.migrate(member.tenant.pid, source, target)

    def compact(self) -> None:
        with self.counted("compact memory"):
            stress.put(Path("/proc/sys/vm/compact_memory"), 1)

    def split(self) -> None:
        with self.counted("split huge pages"):
            stress.put(stress.DEBUGFS / "split_huge_pages", 1)

    def inject_faults(self) -> None:
        with self.counted("inject faults"):
            self.faults.switch(self.choose.random() < 0.5)

    def limit(self) -> None:
        member = self.crowd.any()
        if member.locked:
            return
        mib = self.choose.choice((member.tenant.spec.mib // 2 + 1, None))
        with self.counted("limit a tenant" if mib else "lift a limit"):
            member.cgroup.limit(mib)
            member.limited = mib is not None

    def reclaim(self) -> None:
        member = self.crowd.any()
        with self.counted("reclaim from a tenant", errno.EAGAIN):
            member.cgroup.reclaim(member.tenant.spec.mib // 2)

    def swap_off_and_on(self) -> None:
        """Without limits, within which some could not come back."""
        for member in self.crowd.alive:
            member.cgroup.limit(None)
            member.limited = False
        with self.counted("swap off and on"):
            self.swap.off()
            self.swap.on()

    def generations(self) -> None:
        value = self.choose.choice("yn")
        with self.counted(f"lru_gen {value}"):
            stress.put(Path("/sys/kernel/mm/lru_gen/enabled"), value)

    def offline_and_online(self) -> None:
        with self.counted("memory off and on"):
            went, stayed = self.memory.offline()
            self.crowd.receive_all()
            self.crowd.send_some()
            self.memory.online()
        self.offlined += went
        self.crowd.counts.refused["memory off and on"] += stayed

    def end(self) -> None:
        self.faults.switch(False)
        self.swap_off_and_on()


def read_all(ksm: Ksm, crowd: Crowd, ended: threading.Event) -> int:
    """Reads everything there is to read, for as long as the run goes on."""
    rounds = 0
    while not ended.wait(READ_SECONDS):
        for file in ksm.root.iterdir():
            file.read_text()
        for member in list(crowd.alive):
            try:
                Path(f"/proc/{member.tenant.pid}/ksm_stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
        rounds += 1
    return rounds


def progress(ksm: Ksm, crowd: Crowd, began: float) -> None:
    crowd.all_do("verify")
    elapsed = time.monotonic() - began
    print(
        f"  {elapsed:4.0f} s: {len(crowd.alive)} tenants intact,"
        f" {ksm.merged()} merged mappings, {ksm.read('full_scans')} scans,"
        f" {ksm.read('migrated')} migrated, {crowd.counts.done.total()} actions",
        flush=True,
    )


def go_on(ksm: Ksm, crowd: Crowd, actions: Actions) -> None:
    """One action after the other, each as often as the others, until time is up."""
    began = time.monotonic()
    verified = began
    # The rarest first, from behind, so that a short run has it on merged pages.
    deck = [actions.offline_and_online, actions.merge] if actions.memory.blocks else []
    while time.monotonic() - began < SECONDS:
        if not deck:
            deck = actions.all()
            actions.choose.shuffle(deck)
        crowd.send_some()
        deck.pop()()
        crowd.receive_all()
        if time.monotonic() - verified > VERIFY_SECONDS:
            progress(ksm, crowd, began)
            verified = time.monotonic()
    progress(ksm, crowd, began)


def take_apart(ksm: Ksm, crowd: Crowd) -> None:
    """Every tenant is still intact, and KSM's books are empty."""
    for member in list(crowd.alive):
        if member.churning:
            crowd.send(member, "churn")
    crowd.all_do("verify")
    ksm.unmerge()
    crowd.all_do("verify")
    left = {name: ksm.read(name) for name in LEFT_BEHIND}
    assert not any(left.values()), left
    for member in list(crowd.alive):
        crowd.quit(member)


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    stress.account_memory()
    crowd = Crowd(random.Random(SEED), Counts())
    yield crowd
    for member in list(crowd.alive):
        crowd.kill(member)


@pytest.mark.stress
def test_stress(ksm: Ksm, crowd: Crowd, capsys: pytest.CaptureFixture[str]) -> None:
    ended = threading.Event()
    stress.stop_leak_scans()
    actions = Actions(ksm, crowd, crowd.choose)
    with capsys.disabled(), ThreadPoolExecutor(1) as pool:
        print(f"\nNUKSM_STRESS_SEED={SEED} NUKSM_STRESS_SECONDS={SECONDS:.0f}")
        for node in LEAST_PER_NODE * crowd.nodes:
            crowd.start(node)
        ksm.start()
        reader = pool.submit(read_all, ksm, crowd, ended)
        try:
            go_on(ksm, crowd, actions)
            actions.end()
            take_apart(ksm, crowd)
        finally:
            ended.set()
            print(crowd.counts.table())
        print(f"  every file read {reader.result()} times")
        assert stress.leaks() == []
    if len(crowd.nodes) == 4:
        assert actions.offlined > 0
