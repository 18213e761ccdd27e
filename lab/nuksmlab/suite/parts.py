# SPDX-License-Identifier: GPL-2.0-only
"""What `make test` and `make test-all` consist of: targets of the Makefile."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

# Of the fuzzer, a round that is the same each time; `make stress` plays others.
FUZZ = "SEED=11301603"
# Leaves out tests that take half a minute or more: `test-all` has parts for these.
QUICK = "QUICK=1"


@dataclass(frozen=True)
class Part:
    """A target, with what make is told beside it, and the parts it needs."""

    name: str
    arguments: tuple[str, ...]
    after: tuple[str, ...] = ()


def part(name: str, *arguments: str, after: Collection[str] = ()) -> Part:
    return Part(name, arguments or (name,), tuple(after))


def quick(name: str, after: Collection[str]) -> Part:
    return part(name, name, QUICK, after=after)


# In the order in which they begin, if nothing else decides: the longest first.
SMALL = (
    part("build-lab"),
    part("kernel-lab", "kernel", "CONFIG=lab"),
    part("kernel-um", "kernel", "ARCH=um"),
    part("build", after=["build-lab"]),
    quick("guest-2", ["build"]),
    quick("engine-2", ["build-lab", "kernel-lab"]),
    quick("engine-domains", ["build-lab", "kernel-lab"]),
    quick("engine-replicas", ["build-lab", "kernel-lab"]),
    quick("engine-looks", ["build-lab", "kernel-lab"]),
    quick("engine-folding", ["build-lab", "kernel-lab"]),
    quick("engine-payers", ["build-lab", "kernel-lab"]),
    quick("engine-latecomers", ["build-lab", "kernel-lab"]),
    quick("engine-program", ["build", "kernel-lab"]),
    part("check", after=["build"]),
    part("unit", after=["check"]),
    part(
        "fuzz",
        "stress",
        "KERNEL=nuksm",
        "SECONDS=60",
        FUZZ,
        after=["build", "kernel-lab"],
    ),
    part("engine-um", after=["build", "kernel-um"]),
)
NEWER = "VERSION=7.3"
MORE = (
    part("kernel-debug", "kernel", "CONFIG=debug"),
    part("kernel-lab-7.3", "kernel", "CONFIG=lab", NEWER),
    part("kernel-um-7.3", "kernel", "ARCH=um", NEWER),
    part("program", after=["build"]),
    quick("paper", ["program", "kernel-lab", "kernel-um"]),
    part("engine-slow", after=["build", "kernel-lab"]),
    part("guest-slow", after=["build"]),
    part("engine-debug", after=["build", "kernel-debug"]),
    # After the other one: they write to one journal.
    part(
        "stress",
        "stress",
        "NODES=4",
        "SECONDS=300",
        FUZZ,
        after=["fuzz", "kernel-debug"],
    ),
    part("selftests-some", after=["build", "kernel-lab"]),
    part("guest-4", after=["build"]),
    part("engine-4", after=["build", "kernel-lab"]),
    part("engine-tiers", after=["build", "kernel-lab"]),
    part("package", after=["program"]),
    part("kernel-check", after=["kernel-lab"]),
    part("counter", after=["build", "kernel-lab"]),
    part("guest-2-7.3", "guest-2", "KERNEL=stock-7.3", after=["build"]),
    *(
        part(f"{name}-7.3", name, NEWER, after=["build", "kernel-lab-7.3"])
        for name in (
            *("engine-2", "engine-domains", "engine-replicas", "engine-looks"),
            *("engine-folding", "engine-payers", "engine-latecomers"),
            "engine-program",
        )
    ),
    part("kernel-check-7.3", "kernel-check", NEWER, after=["kernel-lab-7.3"]),
    part("engine-um-7.3", "engine-um", NEWER, after=["build", "kernel-um-7.3"]),
)
SUITES: dict[str, Sequence[Part]] = {"test": SMALL, "test-all": (*SMALL, *MORE)}
