# SPDX-License-Identifier: GPL-2.0-only
"""Counts DRAM accesses by node, in the emulator: the plugin in lab/plugin."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, cast

from nuksmlab import paths
from nuksmlab.machine import Machine

COUNTS = "counts.jsonl"
# What is counted.
PROGRAMS, KERNELS = "programs", "kernels"


class Counts(TypedDict):
    """Of one measured phase of a tenant; a line of the plugin's output."""

    tenant: int
    node: int
    instructions: int
    loads: int
    stores: int
    l1_misses: int
    local: int  # misses of the last-level cache, answered by the own node's memory
    remote: int
    elsewhere: int  # by no node's: the firmware's and devices' memory
    by_node: list[int]


@dataclass(frozen=True)
class Caches:
    """Each virtual CPU's own cache, and its node's last level."""

    l1_kib: int = 32
    l1_ways: int = 8
    llc_kib: int = 1024
    llc_ways: int = 16


def node_options(machine: Machine) -> list[str]:
    """Where QEMU says that each node's memory is.

    QEMU 7.2 adds the address of the node's memory among all memory twice: once
    for where the block lies among its blocks, which are in the same order, and
    once for where it lies in the machine.
    """
    size = machine.node_mib << 20
    return [f"node={2 * node * size}+{size}" for node in range(machine.nodes)]


def qemu_options(
    machine: Machine, caches: Caches, output: Path, counted: str = PROGRAMS
) -> str:
    options = [
        f"file={paths.COUNTER}",
        f"out={output.absolute() / COUNTS}",
        *node_options(machine),
        *(f"{name}={value}" for name, value in vars(caches).items()),
        *(["kernels=1"] if counted == KERNELS else []),
    ]
    return f"-plugin {','.join(options)}"


def read(path: Path) -> list[Counts]:
    return [cast(Counts, json.loads(line)) for line in path.read_text().splitlines()]
