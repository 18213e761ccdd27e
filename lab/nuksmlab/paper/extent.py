# SPDX-License-Identifier: GPL-2.0-only
"""How much of each workload is run: data, caches and operations go together."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from nuksmlab import database, virtual
from nuksmlab.counter import Caches
from nuksmlab.machine import Machine
from nuksmlab.paper.trial import Place, Trial

WORKLOADS = ("xsbench", "btree", "mysql", "cg", "random_access")


@dataclass(frozen=True)
class Extent:
    name: str
    kib: int  # of shared data, of each instance
    database_kib: int  # of MariaDB's table, which each transaction reads four times
    caches: Caches
    operations: Mapping[str, int]
    repetitions: int  # of trials; odd, so that a median is one of them
    other_repetitions: int  # of what has no trials: merging, pressure
    copy_mib: int = 1024  # where processes are copies of each other
    by_name: tuple[str, ...] = ()  # experiments that are run only if asked for


# The paper's data are 115 to 820 times as large as its machine's last-level cache.
FULL = Extent(
    "full",
    65536,
    16384,
    Caches(llc_kib=512),
    {
        "random_access": 1_000_000,
        "btree": 200_000,
        "xsbench": 20_000,
        "cg": 2,
        "mysql": 3,
        "skewed": 200_000,
    },
    5,
    2,
    by_name=("replicas",),  # they are not the paper's
)
QUICK = Extent(
    "quick",
    16384,
    16384,
    Caches(llc_kib=128),
    # Not fewer than in full: else it would show what else the machine does meanwhile.
    {**FULL.operations, "cg": 8, "mysql": 2},
    1,
    1,
    copy_mib=256,
)
# Several times what a cache holds. The caches are the machine's own.
HOST = Extent(
    "host",
    1 << 20,
    256 << 10,
    Caches(),
    {
        "random_access": 20_000_000,
        "btree": 5_000_000,
        "xsbench": 1_000_000,
        "cg": 10,
        "mysql": 3,
        "skewed": 5_000_000,
    },
    3,
    3,
    by_name=("replicas", "pressure", "merging"),  # the latter two are of no nodes
)
# Whether all of it runs on a machine. Caches hold the data: times say nothing.
REHEARSAL = replace(
    HOST,
    name="rehearsal",
    kib=8192,
    database_kib=8192,
    operations={**FULL.operations, "random_access": 100_000, "btree": 20_000},
    repetitions=1,
    other_repetitions=1,
)


@dataclass(frozen=True)
class Configuration:
    """A way to merge, by its name in the tables."""

    name: str
    placement: str
    index: str = "checksum"
    kib_per_tree: int = 16  # the engine's default; 0: one tree
    corrected: str = ""


OFF = Configuration("KSM off", "off")
# The same kernel without what the engine adds: one tree, ordered by content.
STOCK = Configuration("KSM", "first", "content", 0)
NUKSM = Configuration("nuKSM", "fair")
# As near to the paper's as the engine can be: trees by content, one for each 100 MiB.
BY_CONTENT = Configuration("nuKSM, by content", "fair", "content", 102400)
CORRECTED = replace(STOCK, name="KSM + nuksm place", corrected="fair")


@dataclass(frozen=True)
class Part:
    """What one boot of one machine measures."""

    name: str
    machine: Machine
    caches: Caches
    trials: list[Trial]


def data_kib(extent: Extent, workload: str) -> int:
    inside = workload.removeprefix(virtual.PREFIX)
    return extent.database_kib if inside == database.NAME else extent.kib


def trial(
    extent: Extent,
    workload: str,
    configuration: Configuration,
    instances: list[Place],
    **other: int,
) -> Trial:
    return {
        "configuration": configuration.name,
        "workload": workload,
        "kib": other.get("kib", data_kib(extent, workload)),
        "operations": extent.operations[workload.removeprefix(virtual.PREFIX)],
        "placement": configuration.placement,
        "index": configuration.index,
        "kib_per_tree": configuration.kib_per_tree,
        "corrected": configuration.corrected,
        "instances": instances,
        "stages": other.get("stages", 1),
        "repetition": other.get("repetition", 0),
    }


def by_turns(instances: list[Place], repetition: int) -> list[Place]:
    """Who starts first is on the first node, then on the last, then on the first."""
    nodes = [place["node"] for place in instances]
    if repetition % 2:
        nodes.reverse()
    return [
        {**place, "node": node} for place, node in zip(instances, nodes, strict=True)
    ]


def interleaved(
    extent: Extent,
    workload: str,
    configurations: Iterable[Configuration],
    instances: list[Place],
) -> list[Trial]:
    """All configurations once, then all of them again, from the other end."""
    several = list(configurations)
    return [
        trial(
            extent,
            workload,
            configuration,
            by_turns(instances, repetition),
            repetition=repetition,
        )
        for repetition in range(extent.repetitions)
        for configuration in several
    ]
