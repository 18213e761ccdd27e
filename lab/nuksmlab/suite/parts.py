# SPDX-License-Identifier: GPL-2.0-only
"""What `make test`, `make test-all` and `make mutants` consist of: targets of the
Makefile."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from nuksmlab.mutants.mutant import AS_IT_IS, known

# Of the fuzzer, a round that is the same each time; `make stress` plays others.
FUZZ = "SEED=11301603"
# Leaves out tests that take half a minute or more.
QUICK = "QUICK=1"


@dataclass(frozen=True)
class Part:
    """A target, with what make is told beside it, and the parts it needs."""

    name: str
    arguments: tuple[str, ...]
    after: tuple[str, ...] = ()


def part(name: str, *arguments: str, after: Collection[str] = ()) -> Part:
    return Part(name, arguments or (name,), tuple(after))


# The engine's tests on two nodes: machines beside each other, the longest first.
ON_TWO_NODES = (
    *("engine-2", "engine-domains", "engine-replicas", "engine-looks"),
    *("engine-folding", "engine-payers", "engine-latecomers", "engine-program"),
)
NEWER = "VERSION=7.3"


def engine(*options: str, version: str = "") -> tuple[Part, ...]:
    """The engine's tests on two nodes, by its kernel of 6.12, or of another version."""
    return tuple(
        part(
            name + version,
            name,
            *options,
            after=[
                "build" if name == "engine-program" else "build-lab",
                f"kernel-lab{version}",
            ],
        )
        for name in ON_TWO_NODES
    )


# In the order in which they begin, if nothing else decides: the longest first.
BUILDS = (
    part("build-lab"),
    part("kernel-lab", "kernel", "CONFIG=lab"),
    part("kernel-um", "kernel", "ARCH=um"),
    part("build", after=["build-lab"]),
)
SHORT = (
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
SMALL = (
    *BUILDS,
    part("guest-2", "guest-2", QUICK, after=["build"]),
    *engine(QUICK),
    *SHORT,
)
ALL = (
    *BUILDS,
    part("program", after=["build"]),
    part("kernel-debug", "kernel", "CONFIG=debug"),
    part("kernel-lab-7.3", "kernel", "CONFIG=lab", NEWER),
    part("kernel-um-7.3", "kernel", "ARCH=um", NEWER),
    part("paper", "paper", QUICK, after=["program", "kernel-lab", "kernel-um"]),
    part("engine-debug", after=["build", "kernel-debug"]),
    part("guest-2", after=["build"]),
    part("guest-2-7.3", "guest-2", "KERNEL=stock-7.3", after=["build"]),
    *SHORT,
    # After the other one: they write to one journal.
    part(
        "stress",
        "stress",
        "NODES=4",
        "SECONDS=300",
        FUZZ,
        after=["fuzz", "kernel-debug"],
    ),
    *engine(),
    *engine(NEWER, version="-7.3"),
    part("selftests-some", after=["build", "kernel-lab"]),
    part("guest-4", after=["build"]),
    part("engine-4", after=["build", "kernel-lab"]),
    part("counter", after=["build", "kernel-lab"]),
    part("package", after=["program"]),
    part("kernel-check", after=["kernel-lab"]),
    part("kernel-check-7.3", "kernel-check", NEWER, after=["kernel-lab-7.3"]),
    part("engine-um-7.3", "engine-um", NEWER, after=["build", "kernel-um-7.3"]),
    part("engine-tiers", after=["build", "kernel-lab"]),
)
MUTANTS = (
    part(AS_IT_IS, "mutants", f"NAME={AS_IT_IS}"),
    *(
        part(
            mutant.name,
            "mutants",
            f"NAME={mutant.name}",
            after=[] if mutant.package else [AS_IT_IS],
        )
        for mutant in known().values()
    ),
)
SUITES: dict[str, Sequence[Part]] = {
    "test": SMALL,
    "test-all": ALL,
    "mutants": MUTANTS,
}
