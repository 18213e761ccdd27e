# SPDX-License-Identifier: GPL-2.0-only
"""nuksmd's looks at merged pages, which tests wait for."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from nuksmlab import wait
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import Tenant

# Of looks that saw a tenant use its pages: within these they have followed.
SOON = 10


@contextmanager
def reading(tenant: Tenant) -> Iterator[None]:
    """It reads a word of each page again and again, on its node."""
    tenant.command("churn read")
    try:
        yield
    finally:
        tenant.command("churn stop")


@contextmanager
def readings(tenants: Iterable[Tenant]) -> Iterator[None]:
    """All of them."""
    with ExitStack() as stack:
        for tenant in tenants:
            stack.enter_context(reading(tenant))
        yield


def use_now_and_then(ksm: Ksm, tenant: Tenant, pages: int) -> None:
    """In some of eight looks, too few to be hot: these see `pages` used."""
    for _ in range(2 * SOON // 3):
        with reading(tenant):
            look_until_seen(ksm, 1, pages)
        for _ in range(2):
            look(ksm)


def use_alike(ksm: Ksm, looks: int, more: Tenant, less: Tenant) -> None:
    """One in half of the looks, the other one in a quarter: none of them is hot."""
    for number in range(looks):
        with ExitStack() as readers:
            if number % 2 == 0:
                readers.enter_context(reading(more))
            if number % 4 == 0:
                readers.enter_context(reading(less))
            look(ksm)


def used(ksm: Ksm) -> int:
    """Mappings that looks saw used so far."""
    return ksm.read("used_local") + ksm.read("used_remote")


def look(ksm: Ksm) -> int:
    """Waits for the end of a look, and tells how many mappings it saw used."""
    before, goal = used(ksm), ksm.read("looks") + 1
    wait.until(lambda: ksm.read("looks") >= goal, lambda: f"look {goal}", poll=0.02)
    return used(ksm) - before


def look_until_seen(ksm: Ksm, looks: int, pages: int) -> None:
    """Until so many looks saw most of `pages` used: a slow machine takes more."""
    seen = 0
    while seen < looks:
        seen += look(ksm) >= 0.9 * pages
