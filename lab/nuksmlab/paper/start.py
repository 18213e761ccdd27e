# SPDX-License-Identifier: GPL-2.0-only
"""Starts an instance of any workload, by its name."""

from contextlib import ExitStack
from pathlib import Path

from nuksmlab import database, virtual
from nuksmlab.database import Database
from nuksmlab.database_guest import DatabaseMachine
from nuksmlab.tenant import ANYWHERE
from nuksmlab.virtual import VirtualMachine
from nuksmlab.workload import Instance

Running = Instance | Database


def start(
    name: str, number: int, node: int, kib: int, *, merged: bool = True
) -> Running:
    if name == database.NAME:
        return Database(number, node, kib, merged=merged)
    return Instance(name, number, node, kib)


class Fleet:
    """Instances for one trial after another.

    Virtual machines take long to boot: they stay for the trials that follow.
    """

    def __init__(self, stack: ExitStack, kernel: Path) -> None:
        self.stack = stack
        self.kernel = kernel
        self.machines: dict[tuple[str, int, int, int], VirtualMachine] = {}

    def get(
        self, trial: ExitStack, name: str, number: int, node: int, kib: int
    ) -> Running:
        """For as long as the trial's stack, at least."""
        if not name.startswith(virtual.PREFIX):
            running = start(name, number, node, kib)
            trial.enter_context(running)
            return running
        key = (name, number, node, kib)
        if key not in self.machines:
            inside = name.removeprefix(virtual.PREFIX)
            kind = DatabaseMachine if inside == database.NAME else VirtualMachine
            machine = kind(inside, number, node, kib, self.kernel)
            self.machines[key] = self.stack.enter_context(machine)
        return self.machines[key]


def run_here(name: str, kib: int, operations: int) -> str:
    """What an instance answers on this machine, without merging."""
    name = name.removeprefix(virtual.PREFIX)
    with start(name, 0, ANYWHERE, kib, merged=False) as instance:
        return instance.run(operations)["checksum"]
