# SPDX-License-Identifier: GPL-2.0-only
"""A family that forks all the time: it has the locks of its areas most of it."""

import mmap
import os
from contextlib import AbstractContextManager

from . import numa
from .area import equal_to
from .puppet import Puppet, fork_and_wait, puppet
from .tenant import Tenant


def _fork_always() -> None:
    while True:
        if not (child := os.fork()):
            os._exit(0)
        os.waitpid(child, 0)


def family(
    tenant: Tenant, node: int, *, areas: int, forkers: int
) -> AbstractContextManager[Puppet]:
    """In its first step it shares the tenant's equal pages, on that node; these are
    looked for in so many areas more, each of which every fork copies.

    In its second one it gets a child that ksmd does not know of, and so many that fork
    all the time. The answer is their process group, for the caller to kill.
    """
    kept: list[mmap.mmap] = []

    def offer() -> None:
        os.sched_setaffinity(0, numa.cpus(node))
        kept.append(equal_to(tenant, areas, forks_have=True))

    def multiply() -> int:
        os.setpgid(0, 0)
        fork_and_wait()
        for number in range(forkers):
            if not os.fork():
                os.sched_setaffinity(0, numa.cpus(number % 2))
                _fork_always()
        return os.getpgid(0)

    return puppet(offer, multiply)
