# SPDX-License-Identifier: GPL-2.0-only
"""Counts DRAM accesses by node, in the emulator: the plugin in lab/plugin."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, cast

from nuksmlab import accelerator, paths
from nuksmlab.machine import Machine, MachineError

COUNTS = "counts.jsonl"
# What is counted.
PROGRAMS, KERNELS = "programs", "kernels"
# From here on, QEMU puts a part of the memory above what devices have below 4 GiB.
DIVIDED_MIB = 2816


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


def node_options(machine: Machine, qemu: str) -> list[str]:
    """Where QEMU of that version says that each node's memory is.

    With 10.0 this is where it lies in the machine. 7.2 adds the address of the node's
    memory among all memory twice: once for where the block lies among its blocks, which
    are in the same order, and once for where it lies in the machine. Both were tried;
    that 8.2 was the first to do as 10.0 is not.
    """
    size = machine.node_mib << 20
    plain = tuple(map(int, qemu.split("."))) >= (8, 2)
    if plain and machine.nodes * machine.node_mib >= DIVIDED_MIB:
        raise MachineError(
            f"machines that count have less than {DIVIDED_MIB} MiB, all nodes together:"
            " more would have a gap in it"
        )
    times = 1 if plain else 2
    return [f"node={times * node * size}+{size}" for node in range(machine.nodes)]


def qemu_options(
    machine: Machine, caches: Caches, output: Path, counted: str = PROGRAMS
) -> str:
    options = [
        f"file={paths.COUNTER}",
        f"out={output.absolute() / COUNTS}",
        *node_options(machine, accelerator.qemu_version()),
        *(f"{name}={value}" for name, value in vars(caches).items()),
        *(["kernels=1"] if counted == KERNELS else []),
    ]
    return f"-plugin {','.join(options)}"


def read(path: Path) -> list[Counts]:
    return [cast(Counts, json.loads(line)) for line in path.read_text().splitlines()]
