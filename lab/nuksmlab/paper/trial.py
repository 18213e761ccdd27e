# SPDX-License-Identifier: GPL-2.0-only
"""One trial: instances of a workload on nodes, a way to merge, what came of it."""

from typing import NotRequired, TypedDict

from nuksmlab.counter import Counts
from nuksmlab.perf import Loads
from nuksmlab.workload import Answer

PAGE_BYTES = 4096


class Place(TypedDict):
    """Where an instance runs, and its nice value."""

    node: int
    nice: int


class Use(TypedDict):
    """What is hot before instances are measured, and what replicas may take."""

    kind: str  # equal: the same pages for all; the others are named in use.py
    hot_percent: int  # of the pages, for nine in ten accesses; 0: by Zipf's law
    budget_percent: int
    across: bool  # merge_across_nodes
    learns: bool  # nuksmd looks before it is measured


class Learned(TypedDict):
    """What nuksmd made of that use."""

    made: int
    folded: int
    migrated: int
    late: int | None  # of these three, in the last looks, if they were watched
    replicas: int  # in the end
    most: int  # at any time
    glance_ms: int
    refused: int


class Busy(TypedDict):
    """Instances work while they are merged, and ksmd while they are measured."""

    hot_percent: int  # of the pages, for nine in ten accesses; 0: by Zipf's law
    huge: bool  # their memory has huge pages, and khugepaged makes more
    looks: int  # of nuksmd, after all was merged and before that


class Trial(TypedDict):
    configuration: str  # its name in the tables
    workload: str
    kib: int  # of shared data, of each instance
    operations: int  # in each measured phase, of each instance
    placement: str  # off, or the engine's: first, fair, priority
    index: str  # the engine's: content is stock KSM's, checksum ours
    kib_per_tree: int  # memory for each of the engine's trees; 0: there is one
    corrected: str  # by `nuksm place` with this policy, after merging; or empty
    instances: list[Place]
    stages: int  # measured phases, each after a further part was merged
    repetition: int
    use: NotRequired[Use]
    busy: NotRequired[Busy]


class Phase(TypedDict):
    """What an instance did in its measured phase."""

    answer: Answer
    loads: NotRequired[Loads]  # where the processor counts them


class ObservedInstance(Phase):
    node: int
    nice: int
    pages: int
    pages_by_node: dict[str, int]


class Observed(TypedDict):
    """One measured phase of all instances; a line of observed.jsonl."""

    trial: Trial
    pages_shared: int
    pages_sharing: int
    pages_freed: (
        int  # free, or of files: by how many more there are since merging began
    )
    instances: list[ObservedInstance]
    learned: NotRequired[Learned]
    huge_kib: NotRequired[list[int]]  # of all instances: before merging, and after
    spoilt: NotRequired[int]  # instances that see what one of them writes, at last


class ResultInstance(ObservedInstance):
    counts: Counts | None  # the emulator's: None on real hardware


class Result(TypedDict):
    trial: Trial
    pages_shared: int
    pages_sharing: int
    pages_freed: int
    instances: list[ResultInstance]
    learned: Learned | None
    huge_kib: list[int]
    spoilt: int | None  # none where nobody was to write
    expected: str  # checksum, of a run on the host without merging
    raw: str  # file and line of what was observed


def places(nodes: list[int], nices: list[int] | None = None) -> list[Place]:
    return [
        {"node": node, "nice": nice}
        for node, nice in zip(nodes, nices or [0] * len(nodes), strict=True)
    ]


def saved_mib(result: Result) -> float:
    """What merging gave back: each merged page but one of its copies."""
    return result["pages_sharing"] * PAGE_BYTES / 2**20


def freed_mib(result: Result) -> float:
    """What the machine has more of, after what KSM takes for its records."""
    return result["pages_freed"] * PAGE_BYTES / 2**20


def merged_share(result: Result) -> float:
    """Of all shared data, in any instance."""
    merged = result["pages_shared"] + result["pages_sharing"]
    return merged / sum(instance["pages"] for instance in result["instances"])


def local_pages_percent(instance: ObservedInstance) -> float:
    local = instance["pages_by_node"].get(str(instance["node"]), 0)
    return 100 * local / sum(instance["pages_by_node"].values())
