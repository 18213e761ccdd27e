# SPDX-License-Identifier: GPL-2.0-only
"""The same two tenants, merged with each placement, ksmd being on the first node."""

from dataclasses import replace

from nuksmlab.machine import Machine
from nuksmlab.paper.extent import NUKSM, STOCK, Configuration, Extent
from nuksmlab.paper.scanning.records import Run

MACHINE = Machine(2, 512)
MIB = 16
# Half of a tenant's pages are equal to the other's, half to none.
EQUAL_PERCENT = 50
FIRST = replace(NUKSM, name="first", placement="first")
FAIR = replace(NUKSM, name="fair")
PRIORITY = replace(NUKSM, name="priority", placement="priority")
CONFIGURATIONS = (STOCK, FIRST, FAIR, PRIORITY)
# Whose turn is first in a scan loses the pages to the other, and has to get them back.
NICES = [-20, 19]


def run_of(configuration: Configuration, repetition: int) -> Run:
    return {
        "configuration": configuration.name,
        "placement": configuration.placement,
        "index": configuration.index,
        "kib_per_tree": configuration.kib_per_tree,
        "mib": MIB,
        "nices": NICES,
        "repetition": repetition,
    }


def runs(extent: Extent) -> list[Run]:
    return [
        run_of(configuration, repetition)
        for repetition in range(extent.repetitions)
        for configuration in CONFIGURATIONS
    ]
