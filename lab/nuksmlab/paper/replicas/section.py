# SPDX-License-Identifier: GPL-2.0-only
"""What replicas take, and what is remote no more."""

import math
import statistics
from collections.abc import Iterator, Sequence
from functools import partial

from matplotlib.figure import Figure as Canvas

from nuksmlab import policy
from nuksmlab.paper import model, use
from nuksmlab.paper.fairness.section import FREED
from nuksmlab.paper.model import Hardware
from nuksmlab.paper.replicas import plan
from nuksmlab.paper.section import (
    MEASURED,
    Check,
    Column,
    Picture,
    Row,
    Section,
    Table,
    at_least,
    at_most,
    number,
    sound,
)
from nuksmlab.paper.trial import Result, Use, freed_mib, saved_mib

TITLE = "Beyond the paper: replicas of hot pages"
# Of the accesses, as each tenant is told to use its pages.
TO_HOT_PAGES = 0.9
# Points more than has to be remote wherever copies are.
MORE = 2.0
# By Zipf's law no page is much hotter than the next one: looks take some for others.
OF_ZIPF = 0.75
AFTER_MOVE = 10.0
# Of what is mapped, percent: a cold page is used in six of eight looks by chance.
LATE = 0.1
# Where looks see about half of a large part used, or of what is about as hot.
LATE_BETWEEN = 5.0
HALF = 50
# Two counts of 200,000 accesses each, by chance: five standard deviations.
CHANCE = 0.8


class Outcome:
    """Of one trial."""

    def __init__(self, result: Result) -> None:
        assert "use" in result["trial"]
        self.result = result
        self.use: Use = result["trial"]["use"]
        self.config = result["trial"]["configuration"]
        self.nodes = len(result["trial"]["instances"])
        self.workload = (self.nodes, self.use["kind"], self.use["hot_percent"])

    @property
    def name(self) -> str:
        hot = f"{self.use['hot_percent']} % hot" if self.use["hot_percent"] else ""
        what = " ".join(word for word in (self.use["kind"], hot) if word)
        return f"{self.nodes} nodes, {what}, {self.config}"

    def shares(self) -> list[float]:
        """Remote ones, of the accesses of each who used their pages, in percent."""
        several = self.result["instances"]
        if self.use["kind"] == use.IDLE:
            several = several[:1]
        return [model.remote_percent(one) for one in several]

    def parts(self) -> list[float]:
        """Of all remote accesses, each tenant's: all access memory as often."""
        shares = self.shares()
        return [one / sum(shares) for one in shares]

    def remote(self) -> float:
        """Of the accesses of all who used their pages, in percent."""
        return statistics.mean(self.shares())

    def has_to_be_remote(self) -> float:
        """With the budget spent on the hottest pages, each with a copy on each node."""
        copied = self.use["budget_percent"] / 100
        hot = self.use["hot_percent"] / 100
        if self.use["kind"] == use.ZIPF:
            pages = self.result["instances"][0]["pages"]
            near = math.log(copied * pages + 1) / math.log(pages)  # as skewed.c draws
        else:
            of_hot = TO_HOT_PAGES if hot < 1 else 1.0
            near = of_hot * min(1.0, copied / hot)
        return 100 * (1 - 1 / self.nodes) * (1 - near)

    def freed_share(self) -> float:
        """Of what the counters say is saved, what the machine has more of."""
        return freed_mib(self.result) / saved_mib(self.result)

    def mapped(self) -> int:
        return sum(one["pages"] for one in self.result["instances"])

    def sharing(self) -> int:
        return self.result["pages_sharing"]


class Outcomes:
    """All, and what each of them is compared with."""

    def __init__(self, results: Sequence[Result]) -> None:
        self.all = [Outcome(result) for result in results]

    def of(self, one: Outcome, way: plan.Way) -> Outcome:
        """The same workload's, another way."""
        return next(
            other
            for other in self.all
            if (other.workload, other.config) == (one.workload, way.configuration.name)
        )

    def saved(self, one: Outcome) -> float:
        """Of what KSM saves, in percent."""
        return 100 * one.sharing() / self.of(one, plan.KSM).sharing()


def table(outcomes: Outcomes) -> Table:
    columns = [
        Column("nodes"),
        Column("workload"),
        Column("hot_percent"),
        Column("config"),
        Column("budget_percent"),
        *(
            Column(name, MEASURED)
            for name in (
                *("remote_percent", "saved_percent", "replicas", "most_replicas"),
                *("made", "folded", "migrated", "late_changes", "glance_ms"),
            )
        ),
    ]
    rows = []
    for one in outcomes.all:
        learned = one.result["learned"]
        cells = [
            str(one.nodes),
            one.use["kind"],
            str(one.use["hot_percent"]),
            one.config,
            str(one.use["budget_percent"]),
            number(one.remote()),
            number(outcomes.saved(one)),
        ]
        if learned:
            figures = (
                *(learned["replicas"], learned["most"], learned["made"]),
                *(learned["folded"], learned["migrated"]),
                "-" if learned["late"] is None else learned["late"],
                learned["glance_ms"],
            )
            cells += map(str, figures)
        else:
            cells += ["-"] * 7
        rows.append(Row(cells, [one.result["raw"]]))
    note = (
        "Of the DRAM accesses of those who use their pages, and of what KSM saves. "
        "Late changes are replicas made or folded and pages moved in "
        f"{use.LATE_LOOKS} looks, after {use.LOOKS} others ({use.LOOKS_APART} apart), "
        f"before anything is moved: watched with a budget of {use.WATCHED_PERCENT} %."
    )
    return Table(
        "replicas", "Remote accesses and savings", columns, rows, note, bare_heads=True
    )


def with_replicas(outcomes: Outcomes) -> list[Outcome]:
    return [one for one in outcomes.all if one.use["budget_percent"]]


def checks(outcomes: Outcomes) -> Iterator[Check]:
    for one in outcomes.all:
        by_heat = one.use["kind"] in (use.APART, use.IDLE)
        if by_heat and one.config == plan.FAIR.configuration.name:
            yield at_most(
                f"{one.name}: remote accesses, %, as pages are where they are hot",
                [one.remote()],
                100 * (1 - 1 / one.nodes) * (1 - TO_HOT_PAGES) + MORE,
            )
    for one in with_replicas(outcomes):
        learned = one.result["learned"]
        assert learned
        budget, hot = one.use["budget_percent"], one.use["hot_percent"]
        fair, stock = outcomes.of(one, plan.FAIR), outcomes.of(one, plan.KSM)
        yield at_most(
            f"{one.name}: remote accesses, %, against nuKSM's",
            [one.remote()],
            fair.remote() + (MORE if one.use["kind"] == use.RELOCATED else CHANCE),
        )
        yield at_most(
            f"{one.name}: replicas, at any time",
            [learned["most"]],
            budget * stock.sharing() // 100,
            0,
        )
        yield at_least(
            f"{one.name}: saved, % of KSM's", [outcomes.saved(one)], 100 - budget, 1
        )
        yield at_least(
            f"{one.name}: memory that became free, of what counters say is saved",
            [one.freed_share()],
            FREED,
        )
        if one.use["kind"] == use.EQUAL:
            yield at_most(
                f"{one.name}: remote accesses, %, against what has to be",
                [one.remote()],
                one.has_to_be_remote() + MORE,
            )
        if one.use["kind"] == use.ZIPF:
            yield at_least(
                f"{one.name}: less remote than nuKSM's, of what could be",
                [
                    (fair.remote() - one.remote())
                    / (fair.remote() - one.has_to_be_remote())
                ],
                OF_ZIPF,
                2,
            )
        if one.use["kind"] == use.EQUAL and hot == 100:
            pages = one.result["instances"][0]["pages"]
            even = 1 / one.nodes
            yield at_most(
                f"{one.name}: a tenant's part of all remote accesses, %",
                [100 * part for part in one.parts()],
                100 * (even + policy.allowed(even, pages)),
            )
        if learned["late"] is not None:
            yield at_most(
                f"{one.name}: changes in {use.LATE_LOOKS} looks, % of what is mapped",
                [100 * learned["late"] / one.mapped()],
                LATE_BETWEEN if one.use["kind"] == use.ZIPF or hot > HALF else LATE,
            )
        if one.use["kind"] in (use.MOVED, use.RELOCATED):
            yield at_most(
                f"{one.name}: remote accesses, {use.LOOKS_AFTER_MOVE} looks later, %",
                [one.remote()],
                AFTER_MOVE,
            )


def draw(outcomes: Outcomes, canvas: Canvas) -> None:
    """One line for each workload: from no replicas to the largest budget.

    There are more than colours: those that are hot alike for all are drawn through.
    """
    nodes = sorted({one.nodes for one in outcomes.all})
    all_axes = canvas.subplots(1, len(nodes), sharey=True, squeeze=False)[0]
    for axes, count in zip(all_axes, nodes, strict=True):
        workloads = {
            one.workload: one for one in with_replicas(outcomes) if one.nodes == count
        }
        for workload, any_one in workloads.items():
            line = [outcomes.of(any_one, plan.FAIR)] + [
                one for one in with_replicas(outcomes) if one.workload == workload
            ]
            _, kind, hot = workload
            alike = kind == use.EQUAL
            kinds = [one for one in workloads if (one[1] == use.EQUAL) == alike]
            axes.plot(
                [outcomes.saved(one) for one in line],
                [one.remote() for one in line],
                color=f"C{kinds.index(workload)}",
                linestyle="-" if alike else ":",
                marker="o" if alike else "s",
                label=f"{kind} {hot} %" if hot else kind,
            )
        stock = [outcomes.of(one, plan.KSM).remote() for one in workloads.values()]
        axes.axhline(
            statistics.median(stock), color="grey", linestyle="--", label="KSM"
        )
        axes.set_title(f"{count} nodes", fontsize="medium")
        axes.set_xlabel("saved, % of what KSM saves")
        axes.grid(alpha=0.3)
    all_axes[0].set_ylim(bottom=0)
    all_axes[0].set_ylabel("remote accesses, %")
    canvas.legend(*all_axes[0].get_legend_handles_labels(), loc="outside right upper")


INTRODUCTION = [
    "A merged page that several nodes use all the time is remote for all of them but "
    "one. Here one tenant on each node uses the same data: nine in ten accesses go to "
    "a hot part of its pages, the same for all (equal), to another part for each "
    "(apart), to one that has just become another (moved, ten looks later); or one "
    "tenant has just gone to another one's node (relocated, likewise; settled, thirty "
    "looks later), or alone uses anything (idle); or the nth page gets a share in "
    "proportion to 1/n (zipf). Looks may take all of a CPU's time here, as emulated "
    "ones are slow. Each tenant has an eighth of the usual data, 8 MiB in full, and "
    "the last-level cache has 16 KiB, so that hot pages are not in caches.",
    "What has to be remote: the budget is spent on the hottest pages, which then have "
    "a copy on each node; accesses to all others are remote as for nuKSM.",
]


def section(results: Sequence[Result], hardware: Hardware) -> Section:  # noqa: ARG001
    outcomes = Outcomes(results)
    caption = "Memory saved against accesses that are remote, by budget (measured)"
    return Section(
        TITLE,
        INTRODUCTION,
        [table(outcomes)],
        [Picture("replicas", caption, partial(draw, outcomes))],
        [*sound(results), *checks(outcomes)],
    )
