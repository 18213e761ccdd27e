# SPDX-License-Identifier: GPL-2.0-only
"""Starts an instance of any workload, by its name."""

from nuksmlab import database
from nuksmlab.database import Database
from nuksmlab.workload import Instance

Running = Instance | Database


def start(
    name: str, number: int, node: int, kib: int, *, merged: bool = True
) -> Running:
    if name == database.NAME:
        return Database(number, node, kib, merged=merged)
    return Instance(name, number, node, kib)


def run_here(name: str, kib: int, operations: int) -> str:
    """What an instance answers on this machine, without merging."""
    with start(name, 0, 0, kib, merged=False) as instance:
        return instance.run(operations)["checksum"]
