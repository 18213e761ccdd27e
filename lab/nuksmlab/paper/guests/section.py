# SPDX-License-Identifier: GPL-2.0-only
"""The tables of Figure 6 and Table II once more, for virtual machines."""

from collections.abc import Sequence
from functools import partial

from nuksmlab.paper import sensitivity
from nuksmlab.paper.extent import CORRECTED, NUKSM, OFF, STOCK
from nuksmlab.paper.fairness.section import (
    MERITS,
    OF_TIMES,
    SLOWER,
    Workload,
    bars,
    checks,
    claims,
    differences,
    merits,
    remote_shares,
    run_times,
)
from nuksmlab.paper.model import Hardware
from nuksmlab.paper.section import (
    Picture,
    Section,
    grouped,
    sound,
    workloads,
)
from nuksmlab.paper.trial import Result

TITLE = "Real virtual machines: Figures 3 and 6 and Table II by KVM"
SHOWN = (STOCK, NUKSM, CORRECTED)
INTRODUCTION = [
    "The same by KVM, nested in the emulated machine: two guests, each bound to its "
    "node, the second started when the first is up; in one boot of the machine the "
    "first is on node 0, in another one on node 1. All of their memory is mergeable, "
    "the guest kernels' pages, too. They run the same kernel, and the workload "
    "as their only process, but for MySQL: MariaDB and sysbench on a small Debian. "
    "They stay for all configurations; in between, all pages are "
    "unmerged, and come back to their own nodes.",
    OF_TIMES,
]


def section(results: Sequence[Result], hardware: Hardware) -> Section:
    groups = grouped(results)
    several = [Workload(groups, name, hardware) for name in workloads(groups)]
    time = "run time, normalized to instance 0 without KSM"
    draw = partial(
        bars, Workload.normalized, "run time, normalized", several, (OFF, *SHOWN)
    )
    return Section(
        TITLE,
        INTRODUCTION,
        [
            run_times("guests-run-time", f"Guests: {time}", several, SHOWN),
            remote_shares(
                "guests-remote",
                "Guests: remote share of DRAM accesses, %",
                several,
                SHOWN,
            ),
            merits("guests-table-2", f"Guests: {MERITS}", several),
            sensitivity.table(
                "guests-sensitivity",
                f"Guests: {SLOWER}; published: from Table II's fairness",
                differences(groups, several),
                hardware,
            ),
        ],
        [Picture("guests-run-time", "Guests: run times (modelled)", draw)],
        [*sound(results), *checks(several)],
        claims(groups, several, hardware, "In virtual machines: "),
    )
