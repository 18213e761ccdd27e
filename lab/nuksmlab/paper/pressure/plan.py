# SPDX-License-Identifier: GPL-2.0-only
"""Stock's index, the paper's forest and ours, in the same race against a job.

With pages that are the worst case for an index by content, as they differ in their last
bytes only, and with ordinary ones. At the paper's size ordinary data is enough for ksmd
to fall behind; at ours a tree of it is low. The three speeds were chosen before
anything ran; at which of them stock's index has to lose, when a run had told the
indexes apart there. Ours has to survive at each.
"""

from dataclasses import dataclass

from nuksmlab.paper.pressure.records import Run

GUEST_MIB = 2560
INSTANCE_MIB = 1024
STEP_MIB = 16
# Together with the instances just more than the guest has, if nothing is merged.
STEPS = 40
INTERVALS = (0.1, 0.2, 0.3)
# At this one the old index runs out of memory, it is said, and ours does not.
CLAIMED = INTERVALS[0]
WORST, ORDINARY = "worst", "ordinary"
ORDINARY_INTERVALS = (0.1, 0.2)
# Each data with each of its intervals.
SPEEDS = (
    *((WORST, interval) for interval in INTERVALS),
    *((ORDINARY, interval) for interval in ORDINARY_INTERVALS),
)


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


def run_of(data: str, index: Index, interval: float, repetition: int) -> Run:
    return {
        "configuration": index.name,
        "index": index.index,
        "kib_per_tree": index.kib_per_tree,
        "data": data,
        "instance_mib": INSTANCE_MIB,
        "step_mib": STEP_MIB,
        "steps": STEPS,
        "interval": interval,
        "repetition": repetition,
    }


def runs(worst: int, ordinary: int) -> list[Run]:
    """So many repetitions with the two kinds of data."""
    return [
        run_of(data, index, interval, repetition)
        for data, intervals, repetitions in (
            (WORST, INTERVALS, worst),
            (ORDINARY, ORDINARY_INTERVALS, ordinary),
        )
        for repetition in range(repetitions)
        for interval in intervals
        for index in INDEXES
    ]
