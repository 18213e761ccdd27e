# SPDX-License-Identifier: GPL-2.0-only
"""Four nodes, with one or two instances on each, equal and by priority."""

from dataclasses import replace

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
from nuksmlab.paper.priority import plan as priority
from nuksmlab.paper.trial import Trial, places

NODES = 4
NODE_MIB = 384
WORKLOADS = ("random_access", "btree")
INSTANCES = (4, 8)
CONFIGURATIONS = (OFF, STOCK, NUKSM, CORRECTED)
# By order of start. A node's weight is that of all of its instances.
NICES = (-10, 0, 5, 19, 0, 0, 0, 0)
BY_PRIORITY = replace(priority.BY_PRIORITY, name="nuKSM, priorities")
CORRECTED_BY_PRIORITY = replace(
    priority.CORRECTED, name="KSM + nuksm place, priorities"
)
PLACED_BY_PRIORITY = (BY_PRIORITY, CORRECTED_BY_PRIORITY)


def trials(extent: Extent, workload: str, count: int, repetition: int) -> list[Trial]:
    nodes = [number % NODES for number in range(count)]
    equal, unequal = places(nodes), places(nodes, list(NICES[:count]))
    return [
        trial(
            extent,
            workload,
            configuration,
            by_turns(instances, repetition),
            kib=extent.kib // 2,
            repetition=repetition,
        )
        for configurations, instances in (
            (CONFIGURATIONS, equal),
            (PLACED_BY_PRIORITY, unequal),
        )
        for configuration in configurations
    ]


def parts(extent: Extent) -> list[Part]:
    """Half the data of each, since there are so many."""
    return [
        Part(
            f"nodes-{workload}",
            Machine(NODES, NODE_MIB),
            extent.caches,
            [
                planned
                for repetition in range(extent.repetitions)
                for count in INSTANCES
                for planned in trials(extent, workload, count, repetition)
            ],
        )
        for workload in WORKLOADS
    ]
