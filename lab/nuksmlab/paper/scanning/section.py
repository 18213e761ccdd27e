# SPDX-License-Identifier: GPL-2.0-only
"""What placing costs ksmd, by page that it scans."""

from collections.abc import Callable, Iterator, Sequence

from nuksmlab import policy
from nuksmlab.paper.extent import STOCK, Configuration
from nuksmlab.paper.model import Hardware, modelled_seconds
from nuksmlab.paper.scanning import plan
from nuksmlab.paper.scanning.records import Result, Work
from nuksmlab.paper.section import (
    MEASURED,
    MODELLED,
    Check,
    Column,
    Row,
    Section,
    Table,
    all_on_nodes,
    at_most,
    how_often,
    spread,
)

TITLE = "What placing costs ksmd (not in the paper)"
INTRODUCTION = [
    "The paper does not say what its placement costs the kernel thread that merges. "
    f"Here are two tenants of {plan.MIB} MiB on two nodes, half of whose pages are "
    "equal, and ksmd, held on the first node. The emulator counts all that the kernel "
    "does there: until all is merged, and in ten scans more. All merged pages are "
    "found on one node. A page that is placed elsewhere is copied there: if fair, half "
    "of them, and by priority nearly all, which is the most that there can be. That "
    "they are there in the end is a goal, to what lots may be off by chance.",
]
PHASES: dict[str, Callable[[Result], Work]] = {
    "until all is merged": lambda result: result.merging,
    "ten scans more": lambda result: result.resting,
}
# The first was chosen before anything was run; the second was 1.05 then.
MERGING_COSTS = 1.25
RESTING_COSTS = 1.10


def of(results: Sequence[Result], name: str) -> list[Result]:
    return [one for one in results if one.observed["run"]["configuration"] == name]


def microseconds(work: Work, hardware: Hardware) -> float:
    """For each page."""
    return 1e6 * modelled_seconds(work.counts, hardware) / work.scanned


def ratios(
    results: Sequence[Result],
    name: str,
    phase: Callable[[Result], Work],
    hardware: Hardware,
) -> list[float]:
    """Of the time for a page, to that with the placement of who came first."""
    return [
        microseconds(phase(placed), hardware) / microseconds(phase(first), hardware)
        for placed, first in zip(
            of(results, name), of(results, plan.FIRST.name), strict=True
        )
    ]


def near_percent(result: Result) -> float:
    """Of the first tenant's merged pages, on its node."""
    nodes = result.observed["pages_by_node"]
    return 100 * nodes.get("0", 0) / sum(nodes.values())


def table(results: Sequence[Result], hardware: Hardware) -> Table:
    columns = [
        Column("placement"),
        Column("phase"),
        Column("pages of the first tenant on its node, %", MEASURED),
        Column("pages scanned", MEASURED),
        Column("instructions for each", MEASURED),
        Column("DRAM accesses for each: local", MEASURED),
        Column("remote", MEASURED),
        Column("microseconds for each", MODELLED),
        Column("against first", MODELLED),
    ]
    rows = []
    for configuration in plan.CONFIGURATIONS:
        found = of(results, configuration.name)
        for name, phase in PHASES.items():
            works = [phase(result) for result in found]
            cells = [
                configuration.name,
                name,
                spread([near_percent(result) for result in found], 1),
                spread([work.scanned for work in works], 0),
                *(
                    spread([counted / work.scanned for work, counted in pairs], 1)
                    for pairs in (
                        [(work, work.counts["instructions"]) for work in works],
                        [(work, work.counts["local"]) for work in works],
                        [(work, work.counts["remote"]) for work in works],
                    )
                ),
                spread([microseconds(work, hardware) for work in works]),
                spread(ratios(results, configuration.name, phase, hardware), 3),
            ]
            rows.append(Row(cells, [result.raw for result in found]))
    note = (
        f"{STOCK.name} is this kernel told to do as stock does: one tree, ordered by "
        "content. The others have an index by checksum."
    )
    return Table("scanning", "ksmd's own work", columns, rows, note)


def placing(results: Sequence[Result], placed: Configuration) -> Check:
    """Its cost says nothing if pages are not placed. Nobody uses them: lots decide."""
    share, _ = policy.target(placed.placement, (0, 1), plan.NICES)
    found = of(results, placed.name)
    pages = min(sum(one.observed["pages_by_node"].values()) for one in found)
    return at_most(
        f"{placed.name}: the first tenant's pages on its node, points off its share",
        [abs(near_percent(one) - 100 * share) for one in found],
        100 * policy.allowed(share, pages),
    )


def checks(results: Sequence[Result], hardware: Hardware) -> Iterator[Check]:
    for placed in (plan.FAIR, plan.PRIORITY):
        yield placing(results, placed)
    goals = zip(PHASES.items(), (MERGING_COSTS, RESTING_COSTS), strict=True)
    for (name, phase), goal in goals:
        for placed in (plan.FAIR, plan.PRIORITY):
            yield at_most(
                f"{placed.name}, {name}: ksmd's time for a page, against first",
                ratios(results, placed.name, phase, hardware),
                goal,
                3,
            )
    yield all_on_nodes(
        phase(result).counts for result in results for phase in PHASES.values()
    )


def section(results: Sequence[Result], hardware: Hardware) -> Section:
    repeated = how_often(result.observed["run"] for result in results)
    return Section(
        TITLE,
        [*INTRODUCTION, f"Each placement is run {repeated}."],
        [table(results, hardware)],
        checks=list(checks(results, hardware)),
    )
