# SPDX-License-Identifier: GPL-2.0-only
"""Two instances of each workload: KSM off, stock, corrected afterwards, nuKSM."""

from nuksmlab.machine import Machine
from nuksmlab.paper.extent import (
    BY_CONTENT,
    CORRECTED,
    NUKSM,
    OFF,
    STOCK,
    WORKLOADS,
    Extent,
    Part,
    interleaved,
)
from nuksmlab.paper.trial import places

NODE_MIB = 512
CONFIGURATIONS = (OFF, STOCK, NUKSM, BY_CONTENT, CORRECTED)


def parts(extent: Extent) -> list[Part]:
    return [
        Part(
            f"fairness-{workload}",
            Machine(2, NODE_MIB),
            extent.caches,
            interleaved(extent, workload, CONFIGURATIONS, places([0, 1])),
        )
        for workload in WORKLOADS
    ]
