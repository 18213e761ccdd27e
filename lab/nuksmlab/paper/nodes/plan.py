# SPDX-License-Identifier: GPL-2.0-only
"""Four nodes, with one instance or two on each."""

from nuksmlab.machine import Machine
from nuksmlab.paper.extent import (
    CORRECTED,
    NUKSM,
    OFF,
    STOCK,
    Extent,
    Part,
    by_turns,
    trial,
)
from nuksmlab.paper.trial import places

NODES = 4
NODE_MIB = 384
WORKLOADS = ("random_access", "btree")
INSTANCES = (4, 8)
CONFIGURATIONS = (OFF, STOCK, NUKSM, CORRECTED)


def parts(extent: Extent) -> list[Part]:
    """Half the data of each, since there are so many."""
    return [
        Part(
            f"nodes-{workload}",
            Machine(NODES, NODE_MIB),
            extent.caches,
            [
                trial(
                    extent,
                    workload,
                    configuration,
                    by_turns(
                        places([number % NODES for number in range(count)]), repetition
                    ),
                    kib=extent.kib // 2,
                    repetition=repetition,
                )
                for repetition in range(extent.repetitions)
                for count in INSTANCES
                for configuration in CONFIGURATIONS
            ],
        )
        for workload in WORKLOADS
    ]
