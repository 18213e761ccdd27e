# SPDX-License-Identifier: GPL-2.0-only
"""Merge domains: cgroups that are given one, and which one a process belongs to."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from nuksmlab import ksm, stress, wait
from nuksmlab.fuzz import model

FILE = "memory.ksm_domain"
SHARED = 0


class Group(stress.Cgroup):
    """A memory cgroup, below another one perhaps."""

    def __init__(self, name: str, parent: "Group | None" = None) -> None:
        super().__init__(f"{parent.path.name}/{name}" if parent else name)

    def divide(self) -> None:
        """Lets cgroups below it count memory, and so have domains of their own."""
        stress.put(self.path / "cgroup.subtree_control", "+memory")

    def give(self, domain: int | str) -> None:
        stress.put(self.path / FILE, domain)

    def given(self) -> str:
        return (self.path / FILE).read_text().strip()

    def take(self, pid: int) -> None:
        """The process, which may be another cgroup's, is in this one from now on."""
        stress.put(self.path / "cgroup.procs", pid)


@contextmanager
def group(name: str, parent: Group | None = None) -> Iterator[Group]:
    made = Group(name, parent)
    try:
        yield made
    finally:
        made.end()


class Halves(Group):
    """A cgroup whose processes are in one or the other of two below it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.divide()
        self.halves = [Group(half, self) for half in ("left", "right")]

    def prefix(self) -> Sequence[str]:
        return self.halves[0].prefix()

    def pids(self) -> list[int]:
        """Children, too."""
        procs = (half.path / "cgroup.procs" for half in self.halves)
        return [int(pid) for file in procs for pid in file.read_text().split()]

    def end(self) -> None:
        for half in self.halves:
            half.end()
        super().end()


def exist() -> bool:
    """Whether this kernel has domains."""
    return Path("/sys/kernel/mm/ksm/default_domain").exists()


def domain_of(pid: int) -> int:
    return ksm.process_stat(pid)["ksm_domain"]


def left_by(pid: int) -> int | None:
    """The domain in which some of its pages may still be merged, though it left it."""
    return ksm.process_stat(pid).get("ksm_domain_left")


def wait_left(pid: int) -> None:
    """Until a process shares nothing with the domain any more that it left."""
    wait.until(
        lambda: left_by(pid) is None,
        lambda: f"the end of sharing in domain {left_by(pid)} by {pid}",
    )


def crossings(pids: Mapping[int, int]) -> list[str]:
    """Pages, in memory or in swap, that processes of different domains have.

    By process, and its domain. They share no memory but what is merged. What moves
    while this looks is left out.
    """
    frames = _shared(pids, model.mappings)
    flags = model.of_frames("kpageflags", frames)
    merged = {
        frame: domains
        for frame, domains in frames.items()
        if flags[frame] & model.ANONYMOUS and not flags[frame] & model.ZERO_PAGE
    }
    return [
        f"{kind} {number:#x} is in domains {sorted(domains)}"
        for kind, found in (
            ("frame", merged),
            ("swap slot", _shared(pids, model.all_slots)),
        )
        for number, domains in found.items()
    ]


def _shared(
    pids: Mapping[int, int], having: Callable[[int], list[int]]
) -> dict[int, set[int]]:
    """What processes of several domains have, before and after somebody looks."""
    before, after = _in_several(pids, having), _in_several(pids, having)
    return {
        number: domains
        for number, domains in before.items()
        if after.get(number) == domains
    }


def _in_several(
    pids: Mapping[int, int], having: Callable[[int], list[int]]
) -> dict[int, set[int]]:
    """Whatever processes of several domains have now, and which these are."""
    numbers: dict[int, set[int]] = {}
    for pid, domain in pids.items():
        numbers.setdefault(domain, set()).update(having(pid))
    often = Counter(itertools.chain.from_iterable(numbers.values()))
    return {
        number: {domain for domain, own in numbers.items() if number in own}
        for number, domains in often.items()
        if domains > 1
    }


def check_apart(pids: Iterable[int]) -> None:
    """Pages are shared across no border but those that somebody is just leaving.

    Nobody may act meanwhile. None of these processes may be another one's child.
    """
    stay = [pid for pid in pids if left_by(pid) is None]
    if wrong := crossings({pid: domain_of(pid) for pid in stay}):
        raise model.WrongError(
            f"{len(wrong)} pages in two domains: {'; '.join(wrong[: model.SHOWN])}"
        )
