# SPDX-License-Identifier: GPL-2.0-only
"""Merged pages that are paged out, and who has them there."""

import contextlib
from collections.abc import Callable, Iterable

from nuksmlab import domains, wait
from nuksmlab.domains import Group
from nuksmlab.fuzz import model
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import Tenant

SCANS = 3  # in which whoever left has left, if nothing keeps it


Part = tuple[int, int, int]  # a process, where in it, and how many pages


def equal_part(tenant: Tenant) -> Part:
    """Those that are equal to others'."""
    return tenant.pid, int(tenant.facts["equal_at"], 16), tenant.equal_pages


def slots(tenant: Tenant) -> set[int]:
    return set(model.slots(*equal_part(tenant)))


def frames(tenant: Tenant) -> set[int]:
    return set(model.frames(*equal_part(tenant)))


def page_out(in_memory: Callable[[], Iterable[int]], *cgroups: Group) -> None:
    """All that is in memory yet."""

    def is_out() -> bool:
        for cgroup in cgroups:
            with contextlib.suppress(OSError):  # the kernel says that it found less
                cgroup.reclaim(64)
        return not any(in_memory())

    wait.until(is_out, lambda: "paging out")


def scan_until_left(ksm: Ksm, pid: int) -> None:
    """In as many scans as it takes."""

    def has_left() -> bool:
        ksm.scan_once()
        return domains.left_by(pid) is None

    wait.until(has_left, lambda: f"leaving; {ksm.counters()}")


def check_left(ksm: Ksm, stays: Tenant, leaves: Tenant) -> None:
    """Some scans after nothing keeps it any more."""
    for _ in range(SCANS):
        ksm.scan_once()
    assert domains.left_by(leaves.pid) is None
    assert not slots(stays) & slots(leaves)
    model.check_intact([stays, leaves])
