# SPDX-License-Identifier: GPL-2.0-only
"""Fairness among four and eight instances on four nodes."""

from collections.abc import Sequence
from functools import partial

from matplotlib.figure import Figure as Canvas

from nuksmlab.paper import model
from nuksmlab.paper.extent import CORRECTED, NUKSM, OFF, STOCK, Configuration
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
    answers,
    at_least,
    grouped,
    number,
    raw,
    workloads,
)
from nuksmlab.paper.trial import Result, saved_mib

TITLE = "Beyond two nodes (IV-E): four nodes with four and eight instances"
FAIR, COMBINED = 0.98, 0.98
MERGED = (STOCK, NUKSM, CORRECTED)


class Case:
    """One workload in so many instances."""

    def __init__(
        self, groups: Grouped, workload: str, instances: int, hardware: Hardware
    ) -> None:
        self.name = f"{workload}, {instances} instances"
        self.workload = workload
        self.instances = instances
        self.groups = groups
        self.hardware = hardware

    def results(self, configuration: Configuration) -> list[Result]:
        return [
            result
            for result in self.groups[self.workload, configuration.name]
            if len(result["instances"]) == self.instances
        ]

    def times(self, configuration: Configuration) -> list[float]:
        return model.mean_seconds(self.results(configuration), self.hardware)

    def slowdowns(self, configuration: Configuration) -> list[float]:
        return model.slowdowns(self.times(configuration), self.times(OFF))

    def fairness(self, configuration: Configuration) -> float:
        return model.fairness(self.slowdowns(configuration))

    def performance(self, configuration: Configuration) -> float:
        return sum(self.times(STOCK)) / sum(self.times(configuration))

    def remote(self, configuration: Configuration) -> list[float]:
        return model.mean_remote_percent(self.results(configuration))

    def saved(self, configuration: Configuration) -> float:
        return min(saved_mib(result) for result in self.results(configuration))


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
                number(case.fairness(configuration), 3),
                number(min(slowdowns)),
                number(max(slowdowns)),
                number(case.performance(configuration), 3),
                number(min(remote), 1),
                number(max(remote), 1),
                number(case.saved(configuration), 1),
            ]
            used = raw(case.results(OFF), case.results(configuration))
            rows.append(Row(cells, used))
    return Table("four-nodes", "Four nodes, equal instances", columns, rows)


def checks(case: Case) -> list[Check]:
    result = [
        at_least(f"{case.name}: fairness of nuKSM", case.fairness(NUKSM), FAIR),
    ]
    for configuration in (NUKSM, CORRECTED):
        name = f"{case.name}, {configuration.name}"
        fair, stock = case.fairness(configuration), case.fairness(STOCK)
        result += [
            Check(
                f"{name}: fairness against KSM's",
                f"above {stock:.3f}",
                f"{fair:.3f}",
                fair > stock,
            ),
            at_least(
                f"{name}: combined performance",
                case.performance(configuration),
                COMBINED,
            ),
            at_least(
                f"{name}: MiB saved, KSM's at least",
                case.saved(configuration),
                case.saved(STOCK),
                1,
            ),
        ]
    return result


def draw(several: Sequence[Case], canvas: Canvas) -> None:
    all_axes = canvas.subplots(1, len(several), sharey=True, squeeze=False)[0]
    for axes, case in zip(all_axes, several, strict=True):
        for position, configuration in enumerate(MERGED):
            slowdowns = case.slowdowns(configuration)
            width = 0.8 / len(slowdowns)
            axes.bar(
                [position - 0.4 + width * (i + 0.5) for i in range(len(slowdowns))],
                slowdowns,
                width * 0.9,
            )
        names = [configuration.name for configuration in MERGED]
        axes.set_xticks(range(len(MERGED)), names, rotation=20, ha="right")
        axes.set_title(case.name, fontsize="medium")
        axes.grid(axis="y", alpha=0.3)
    all_axes[0].set_ylabel("slowdown of each instance")


INTRODUCTION = [
    "The paper extends its rule to K nodes and says that this was evaluated, without "
    "figures. Here each node has one CPU: of eight instances, the two on one node "
    "are measured one after the other. With K nodes, 1/K of the pages can be local.",
]


def section(results: Sequence[Result], hardware: Hardware) -> Section:
    several = cases(grouped(results), hardware)
    caption = "Slowdown against KSM off, each instance (modelled)"
    return Section(
        TITLE,
        INTRODUCTION,
        [table(several)],
        [Picture("four-nodes", caption, partial(draw, several))],
        [answers(results), *(check for case in several for check in checks(case))],
    )
