# SPDX-License-Identifier: GPL-2.0-only
"""Stock's index, the paper's forest and ours, in the same race against a job.

The instances' pages are the worst case for an index by content: they differ in
their last bytes only. At the paper's size ordinary data does; at ours a tree is
too low for ksmd to fall behind.
"""

from dataclasses import dataclass

from nuksmlab.paper.pressure.records import Run

GUEST_MIB = 2560
INSTANCE_MIB = 1024
STEP_MIB = 16
# Together with the instances just more than the guest has, if nothing is merged.
STEPS = 40
INTERVALS = (0.1, 0.2, 0.3)


@dataclass(frozen=True)
class Index:
    name: str
    index: str
    kib_per_tree: int | None


INDEXES = (
    Index("KSM", "content", 0),
    Index("nuKSM's forest", "content", 102400),
    Index("ours", "checksum", None),
)


def runs(repetitions: int) -> list[Run]:
    return [
        {
            "configuration": index.name,
            "index": index.index,
            "kib_per_tree": index.kib_per_tree,
            "instance_mib": INSTANCE_MIB,
            "step_mib": STEP_MIB,
            "steps": STEPS,
            "interval": interval,
            "repetition": repetition,
        }
        for repetition in range(repetitions)
        for interval in INTERVALS
        for index in INDEXES
    ]
