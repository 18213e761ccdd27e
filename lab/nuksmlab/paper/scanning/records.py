# SPDX-License-Identifier: GPL-2.0-only
"""One run: two tenants, and ksmd, until all is merged and when all is."""

from dataclasses import dataclass
from typing import TypedDict

from nuksmlab.counter import Counts


class Run(TypedDict):
    configuration: str  # its name in the table
    placement: str
    index: str
    kib_per_tree: int
    mib: int  # of each tenant
    nices: list[int]  # of the tenants, which are on nodes 0 and 1
    repetition: int


class Observed(TypedDict):
    """A line of observed.jsonl. Each phase has one of counts.jsonl, in this order."""

    run: Run
    merging: int  # pages that ksmd scanned until all was merged
    scans: int  # of everything, for that
    resting: int  # pages that it scanned again, when all was
    merged: int  # mappings
    pages_by_node: dict[str, int]  # the first tenant's equal ones, in the end


@dataclass(frozen=True)
class Work:
    """What ksmd did in a phase."""

    scanned: int  # pages
    counts: Counts


@dataclass(frozen=True)
class Result:
    observed: Observed
    merging: Work
    resting: Work
    raw: str  # file and line of what was observed
