# SPDX-License-Identifier: GPL-2.0-only
"""Fairness and priorities among four and eight instances on four nodes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from matplotlib.figure import Figure as Canvas

from nuksmlab import policy
from nuksmlab.paper.extent import CORRECTED, NUKSM, OFF, STOCK, Configuration
from nuksmlab.paper.fairness.section import (
    COMBINED,
    FAIR,
    FREED,
    PLANNED_POINTS,
    SAVED,
    fairness_claims,
    planned,
    points_off,
)
from nuksmlab.paper.merits import Merits, by_instance
from nuksmlab.paper.model import Hardware
from nuksmlab.paper.nodes import plan
from nuksmlab.paper.section import (
    MEASURED,
    MODELLED,
    Check,
    Column,
    Grouped,
    Picture,
    Row,
    Section,
    Table,
    at_least,
    at_most,
    bar,
    grouped,
    raw,
    sound,
    spread,
    workloads,
)
from nuksmlab.paper.trial import Result, local_pages_percent

TITLE = "Beyond two nodes (IV-E): four nodes with four and eight instances"
# Of what chance allows, or of a tenth of a point where pages are counted.
ALLOWED = 1.0
# The paper has no figures. As for two nodes, where only one of them has all pages.
STOCK_FAIR = 0.85
MERGED = (STOCK, NUKSM, CORRECTED)


class Case(Merits):
    """One workload in so many instances."""

    def __init__(
        self, groups: Grouped, workload: str, instances: int, hardware: Hardware
    ) -> None:
        own = {
            how: [result for result in found if len(result["instances"]) == instances]
            for (whose, how), found in groups.items()
            if whose == workload
        }
        super().__init__(f"{workload}, {instances} instances", own, hardware)
        self.workload = workload
        self.instances = instances


def cases(groups: Grouped, hardware: Hardware) -> list[Case]:
    return [
        Case(groups, workload, instances, hardware)
        for workload in workloads(groups)
        for instances in plan.INSTANCES
    ]


def table(several: Sequence[Case]) -> Table:
    columns = [
        Column("workload"),
        Column("instances"),
        Column("configuration"),
        Column("fairness", MODELLED),
        Column("least slowdown", MODELLED),
        Column("most", MODELLED),
        Column("performance relative to KSM", MODELLED),
        Column("remote accesses, %: least", MEASURED),
        Column("most", MEASURED),
        Column("MiB saved", MEASURED),
    ]
    rows = []
    for case in several:
        for configuration in MERGED:
            slowdowns = case.slowdowns(configuration)
            remote = case.remote(configuration)
            cells = [
                case.workload,
                str(case.instances),
                configuration.name,
                spread(case.fairness(configuration), 3),
                spread([min(each) for each in slowdowns]),
                spread([max(each) for each in slowdowns]),
                spread(case.performance(configuration), 3),
                spread([min(each) for each in remote], 1),
                spread([max(each) for each in remote], 1),
                spread(case.saved(configuration), 1),
            ]
            used = raw(case.results(OFF), case.results(configuration))
            rows.append(Row(cells, used))
    return Table("four-nodes", "Four nodes, equal instances", columns, rows)


def checks(case: Case) -> Iterator[Check]:
    yield at_most(
        f"{case.name}: KSM's unfairness shows, fairness",
        case.fairness(STOCK),
        STOCK_FAIR,
        3,
    )
    for configuration in (NUKSM, CORRECTED):
        name = f"{case.name}, {configuration.name}"
        yield at_least(f"{name}: fairness", case.fairness(configuration), FAIR)
        off = [
            abs(share - 100 / plan.NODES)
            for one in case.local_pages(configuration)
            for share in one
        ]
        yield at_most(
            f"{name}: points off a quarter of the pages",
            off,
            points_off(case.results(configuration), 1 / plan.NODES, configuration),
        )
        yield at_least(
            f"{name}: MiB saved, against KSM's",
            case.saved(configuration),
            SAVED * min(case.saved(STOCK)),
            1,
        )
        yield at_least(
            f"{name}: memory that became free, of what counters say is saved",
            case.freed_share(configuration),
            FREED,
        )
        yield replace(
            at_least(
                f"{name}: combined performance",
                case.performance(configuration),
                COMBINED,
            ),
            of_measured_times=True,
        )


def wanted_percent(result: Result) -> list[float]:
    """What its weights give each instance's node, of the merged pages."""
    nodes = [instance["node"] for instance in result["instances"]]
    nices = [instance["nice"] for instance in result["instances"]]
    shares = policy.target("priority", nodes, nices)
    by_node = dict(zip(sorted(set(nodes)), shares, strict=True))
    return [100 * by_node[node] for node in nodes]


def priority_table(several: Sequence[Case]) -> Table:
    columns = [
        Column("workload"),
        Column("instances"),
        Column("configuration"),
        Column("order of start"),
        Column("nice"),
        Column("local pages, %: by weight"),
        Column("found", MEASURED),
        Column("remote accesses, %", MEASURED),
        Column("slowdown", MODELLED),
    ]
    rows = []
    for case in several:
        for configuration in plan.PLACED_BY_PRIORITY:
            results = case.results(configuration)
            by_weight = by_instance(list(map(wanted_percent, results)))
            found = by_instance(case.local_pages(configuration))
            remote = by_instance(case.remote(configuration))
            slowdowns = by_instance(case.slowdowns(configuration))
            for number in range(case.instances):
                cells = [
                    case.workload,
                    str(case.instances),
                    configuration.name,
                    str(number),
                    str(plan.NICES[number]),
                    spread(by_weight[number], 1),
                    spread(found[number], 1),
                    spread(remote[number], 1),
                    spread(slowdowns[number]),
                ]
                rows.append(Row(cells, raw(case.results(OFF), results)))
    title = "Four nodes, instances of several priorities"
    return Table("four-nodes-priority", title, columns, rows)


def off_weight(case: Case, configuration: Configuration) -> list[float]:
    """Of each instance in each repetition, from its weight's share: of what is
    allowed."""

    def allowed(share: float, pages: int) -> float:
        if planned(configuration):
            return PLANNED_POINTS
        return 100 * policy.allowed(share, pages)

    return [
        abs(local_pages_percent(instance) - wanted)
        / allowed(wanted / 100, instance["pages"])
        for result in case.results(configuration)
        for instance, wanted in zip(
            result["instances"], wanted_percent(result), strict=True
        )
    ]


def priority_checks(case: Case) -> Iterator[Check]:
    for configuration in plan.PLACED_BY_PRIORITY:
        name = f"{case.name}, {configuration.name}"
        yield at_most(
            f"{name}: off the weights' shares, of what is allowed",
            off_weight(case, configuration),
            ALLOWED,
        )
        yield at_least(
            f"{name}: MiB saved, against KSM's",
            case.saved(configuration),
            SAVED * min(case.saved(STOCK)),
            1,
        )


def draw(several: Sequence[Case], canvas: Canvas) -> None:
    all_axes = canvas.subplots(1, len(several), sharey=True, squeeze=False)[0]
    for axes, case in zip(all_axes, several, strict=True):
        for position, configuration in enumerate(MERGED):
            slowdowns = by_instance(case.slowdowns(configuration))
            width = 0.8 / len(slowdowns)
            for number, values in enumerate(slowdowns):
                left = position - 0.4 + width * (number + 0.5)
                bar(axes, left, values, width * 0.9, color="tab:blue")
        names = [configuration.name for configuration in MERGED]
        axes.set_xticks(range(len(MERGED)), names, rotation=20, ha="right")
        axes.set_title(case.name, fontsize="medium")
        axes.grid(axis="y", alpha=0.3)
    all_axes[0].set_ylabel("slowdown of each instance")


INTRODUCTION = [
    "The paper extends its rule to K nodes and says that this was evaluated, without "
    "figures. Here each node has one CPU: of eight instances, the two on one node "
    "are measured one after the other. With K nodes, 1/K of the pages can be local; by "
    "priority, each node has as many as the weights of its instances' nice values "
    "have of all.",
]


def section(results: Sequence[Result], hardware: Hardware) -> Section:
    several = cases(grouped(results), hardware)
    caption = "Slowdown against KSM off, each instance (modelled)"
    return Section(
        TITLE,
        INTRODUCTION,
        [table(several), priority_table(several)],
        [Picture("four-nodes", caption, partial(draw, several))],
        [
            *sound(results),
            *(
                check
                for case in several
                for check in (*checks(case), *priority_checks(case))
            ),
        ],
        fairness_claims(
            several,
            (STOCK, NUKSM),
            "Four nodes, four and eight instances",
            "the paper says that more than two nodes were evaluated, without figures",
        ),
    )
