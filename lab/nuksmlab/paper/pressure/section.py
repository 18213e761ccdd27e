# SPDX-License-Identifier: GPL-2.0-only
"""Figure 8 from what was observed; who ran out of memory."""

from collections.abc import Iterator, Sequence
from functools import partial

from matplotlib.figure import Figure as Canvas

from nuksmlab.paper.pressure import plan
from nuksmlab.paper.pressure.records import Observed
from nuksmlab.paper.section import (
    MEASURED,
    PUBLISHED,
    UNKNOWN,
    Check,
    Claim,
    Column,
    Picture,
    Row,
    Section,
    Table,
    legend,
    number,
)

TITLE = "Figure 8: memory just over the limit"
OLD, FOREST, OURS = (index.name for index in plan.INDEXES)
PUBLISHED_END = {OLD: "out of memory at 900 s", FOREST: "runs to completion"}
INTRODUCTION = [
    "Two instances hold the same data, and a job allocates more and more: together "
    "they have more than the machine, unless ksmd merges the instances' pages in "
    "time. Which index is quick enough depends on how fast the job is, so it is run "
    "at several speeds.",
    f"The paper has two instances of 40 GiB, a job that takes 2 GiB each 15 s, and "
    f"180 GiB. Here instances have {plan.INSTANCE_MIB} MiB, the job takes "
    f"{plan.STEP_MIB} MiB at a time, and the machine, User-Mode Linux at native speed "
    f"without nodes, has {plan.GUEST_MIB} MiB. With ordinary data a tree is low at "
    "this size; so there are also pages that differ in their last bytes only, the "
    "worst case for an index by content. All speeds were chosen beforehand. Times are "
    "the clock's and depend on what else the host does.",
]


def end(observed: Observed) -> str:
    last = observed["moments"][-1]
    if observed["killed"]:
        return f"out of memory at {last['seconds']:.1f} s"
    return f"all merged at {last['seconds']:.1f} s"


def table(results: Sequence[Observed], raw: str) -> Table:
    columns = [
        Column("data"),
        Column("MiB/s of the job"),
        Column("index"),
        Column("repetition"),
        Column("end", MEASURED),
        Column("the paper's", PUBLISHED),
        Column("least MiB free", MEASURED),
        Column("MiB saved in the end", MEASURED),
        Column("ksmd's CPU, % on average", MEASURED),
    ]
    rows = []
    for line, observed in enumerate(results, 1):
        run, moments = observed["run"], observed["moments"]
        last = moments[-1]
        cells = [
            run["data"],
            number(run["step_mib"] / run["interval"], 0),
            run["configuration"],
            str(run["repetition"]),
            end(observed),
            PUBLISHED_END.get(run["configuration"], UNKNOWN),
            number(min(moment["free_mib"] for moment in moments), 0),
            number(last["saved_mib"], 0),
            number(100 * last["ksmd_seconds"] / last["seconds"], 0),
        ]
        rows.append(Row(cells, [f"{raw}#{line}"]))
    title = "Figure 8: who runs out of memory, by the speed of the job"
    return Table("figure-8", title, columns, rows)


def draw(results: Sequence[Observed], canvas: Canvas) -> None:
    """The worst case's first repetition, at the speed of the goal."""
    shown = [
        observed
        for observed in of(results, plan.WORST, plan.CLAIMED)
        if observed["run"]["repetition"] == 0
    ]
    names = {
        "free_mib": "free, MiB",
        "saved_mib": "de-duplicated, MiB",
        "ksmd_seconds": "ksmd's CPU time, s",
    }
    several = canvas.subplots(1, len(names))
    for axes, (name, label) in zip(several, names.items(), strict=True):
        for observed in shown:
            moments = observed["moments"]
            axes.plot(
                [moment["seconds"] for moment in moments],
                [moment[name] for moment in moments],  # type: ignore[literal-required]
                label=observed["run"]["configuration"],
            )
            if observed["killed"]:
                axes.plot(moments[-1]["seconds"], moments[-1][name], "rx")  # type: ignore[literal-required]
        axes.set_ylabel(label)
        axes.set_xlabel("seconds")
        axes.grid(alpha=0.3)
    legend(canvas, several[0])


def of(results: Sequence[Observed], data: str, interval: float) -> list[Observed]:
    return [
        observed
        for observed in results
        if (observed["run"]["data"], observed["run"]["interval"]) == (data, interval)
    ]


def lost(results: Sequence[Observed], name: str, data: str, interval: float) -> int:
    """How often it ran out of memory."""
    return sum(
        bool(observed["killed"])
        for observed in of(results, data, interval)
        if observed["run"]["configuration"] == name
    )


def at_speed(interval: float) -> str:
    return f"at {plan.STEP_MIB / interval:.0f} MiB/s"


def checks(results: Sequence[Observed]) -> Iterator[Check]:
    """The first one has to be so in each repetition."""
    found = of(results, plan.WORST, plan.CLAIMED)
    repetitions = len(found) // len(plan.INDEXES)
    old, ours = (lost(found, name, plan.WORST, plan.CLAIMED) for name in (OLD, OURS))
    yield Check(
        f"worst data {at_speed(plan.CLAIMED)}: how often the old index runs out of "
        "memory, and ours",
        f"{repetitions} and 0 of {repetitions}",
        f"{old} and {ours}",
        old == repetitions and not ours,
        by_clock=True,
    )
    for interval in plan.ORDINARY_INTERVALS:
        old, ours = (
            lost(results, name, plan.ORDINARY, interval) for name in (OLD, OURS)
        )
        yield Check(
            f"ordinary data {at_speed(interval)}: how often ours runs out of memory",
            f"at most as often as the old index: {old}",
            str(ours),
            ours <= old,
            by_clock=True,
        )


def claim(results: Sequence[Observed]) -> Claim:
    speeds = {plan.WORST: plan.INTERVALS, plan.ORDINARY: plan.ORDINARY_INTERVALS}
    found = "; ".join(
        f"{data} data {at_speed(interval)}: "
        + ", ".join(
            f"{name} {lost(results, name, data, interval)}"
            for name in (OLD, FOREST, OURS)
        )
        + f" of {len(of(results, data, interval)) // len(plan.INDEXES)}"
        for data, intervals in speeds.items()
        for interval in intervals
    )
    return Claim(
        "Figure 8: who runs out of memory (here: how often, by data and speed)",
        "KSM; nuKSM's forest does not",
        found,
        MEASURED,
        "at this size the paper's forest is a handful of trees: "
        + (
            "it helps at some speeds only"
            if survives(results)
            else "it is no help, and that part is not reproduced"
        ),
    )


def survives(results: Sequence[Observed]) -> list[str]:
    """Speeds at which the paper's forest does, and stock's index does not."""
    return [
        at_speed(interval)
        for interval in plan.INTERVALS
        if lost(results, FOREST, plan.WORST, interval)
        < lost(results, OLD, plan.WORST, interval)
    ]


def on_the_forest(results: Sequence[Observed]) -> str:
    """Is it so here, as it is in the paper?"""
    if speeds := survives(results):
        return (
            "In the paper its forest survives where KSM does not. So it does here, "
            f"more often than KSM, {' and '.join(speeds)}."
        )
    return (
        "In the paper its forest survives where KSM does not. Here it does not, at any "
        "speed at which KSM runs out of memory: by its rule a tree is for 100 MiB, "
        "which makes few trees at this size and many at the paper's, and the paper's "
        "data are not the worst case. So this section repeats that an index can decide "
        "who survives, not that the paper's does."
    )


def section(results: Sequence[Observed], raw: str) -> Section:
    caption = "As Figure 8: crosses are where memory ran out (measured)"
    return Section(
        TITLE,
        [*INTRODUCTION, on_the_forest(results)],
        [table(results, raw)],
        [Picture("figure-8", caption, partial(draw, results))],
        list(checks(results)),
        [claim(results)],
    )
