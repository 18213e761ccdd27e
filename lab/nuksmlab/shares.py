# SPDX-License-Identifier: GPL-2.0-only
"""Tenants' equal pages are merged; which part of them is on which node?"""

from collections.abc import Sequence

from nuksmlab import policy
from nuksmlab.ksm import FAST, Ksm
from nuksmlab.tenant import Tenant

# With pauses, so that others get the CPU.
ON_AND_ON = {**FAST, "sleep_millisecs": 50}


def merge(ksm: Ksm, tenants: Sequence[Tenant]) -> None:
    """All of them, at once or a second time."""
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))


def keep_merging(ksm: Ksm, tenants: Sequence[Tenant]) -> None:
    """The same; ksmd goes on."""
    merge(ksm, tenants)
    ksm.set_speed(ON_AND_ON)


def off(tenant: Tenant, wanted: Sequence[float]) -> str | None:
    """Why a tenant has not these parts of its pages on nodes 0, 1, and so on."""
    pages = tenant.equal_pages_by_node()
    found = [pages.get(node, 0) / tenant.equal_pages for node in range(len(wanted))]
    return policy.off_by_more_than_chance(found, wanted, tenant.equal_pages)


def check(tenant: Tenant, wanted: Sequence[float]) -> None:
    assert off(tenant, wanted) is None
