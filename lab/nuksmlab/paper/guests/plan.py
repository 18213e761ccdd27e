# SPDX-License-Identifier: GPL-2.0-only
"""Two virtual machines with the same workload, bound to two nodes."""

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
from nuksmlab.paper.trial import places

NODE_MIB = 768
WORKLOADS = ("btree", "random_access", "xsbench", "cg", "mysql")
CONFIGURATIONS = (OFF, STOCK, NUKSM, CORRECTED)


def parts(extent: Extent) -> list[Part]:
    return [
        Part(
            f"guests-{workload}",
            Machine(2, NODE_MIB),
            extent.caches,
            interleaved(
                extent, virtual.PREFIX + workload, CONFIGURATIONS, places([0, 1])
            ),
        )
        for workload in WORKLOADS
    ]
