# SPDX-License-Identifier: GPL-2.0-only
"""Two virtual machines with the same workload, bound to two nodes."""

from collections.abc import Iterable

from nuksmlab import virtual
from nuksmlab.machine import Machine
from nuksmlab.paper.extent import (
    CORRECTED,
    NUKSM,
    OFF,
    STOCK,
    Extent,
    Part,
    interleaved,
)
from nuksmlab.paper.trial import Trial, places

NODE_MIB = 768
WORKLOADS = ("btree", "random_access", "xsbench", "cg", "mysql")
CONFIGURATIONS = (OFF, STOCK, NUKSM, CORRECTED)


def parts(extent: Extent) -> list[Part]:
    """Guests stay for all trials of a boot: whose first one is on another node has its
    own."""
    return [
        Part(f"guests-{workload}-{first}", Machine(2, NODE_MIB), extent.caches, own)
        for workload in WORKLOADS
        for first, own in by_first(
            interleaved(
                extent, virtual.PREFIX + workload, CONFIGURATIONS, places([0, 1])
            )
        ).items()
    ]


def by_first(trials: Iterable[Trial]) -> dict[int, list[Trial]]:
    """By the node of the guest that is started first."""
    several: dict[int, list[Trial]] = {}
    for trial in trials:
        several.setdefault(trial["instances"][0]["node"], []).append(trial)
    return several
