# SPDX-License-Identifier: GPL-2.0-only
"""Figure 8 from what was observed; who ran out of memory."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
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
    at_least,
    how_often,
    legend,
    number,
)

TITLE = "Figure 8: memory just over the limit"
OLD, FOREST, OURS = (index.name for index in plan.INDEXES)
# Of an instance's pages, when all that are equal are merged.
ALL_SAVED = 0.99
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
    "worst case for an index by content. All speeds were chosen beforehand; at which "
    "of them stock's index has to lose, after a run had told the indexes apart there. "
    "Times are the clock's and depend on what else the host does.",
]


def end(observed: Observed) -> str:
    last = observed["moments"][-1]
    if observed["killed"]:
        return f"out of memory at {last['seconds']:.1f} s"
    if last["saved_mib"] < ALL_SAVED * observed["run"]["instance_mib"]:
        return f"not all merged after {last['seconds']:.1f} s"
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


def lost(results: Sequence[Observed], name: str) -> int:
    """How often it ran out of memory."""
    return sum(
        bool(observed["killed"])
        for observed in results
        if observed["run"]["configuration"] == name
    )


def races(results: Sequence[Observed]) -> int:
    """Of each index."""
    return len(results) // len(plan.INDEXES)


def at_speed(interval: float) -> str:
    return f"at {plan.STEP_MIB / interval:.0f} MiB/s"


def checks(results: Sequence[Observed]) -> Iterator[Check]:
    """In each repetition. Who survives the quickest job does so with slower ones."""
    claimed = of(results, plan.WORST, plan.CLAIMED)
    yield Check(
        f"worst data {at_speed(plan.CLAIMED)}: how often the old index runs out of "
        "memory, and ours",
        f"{races(claimed)} and 0 of {races(claimed)}",
        f"{lost(claimed, OLD)} and {lost(claimed, OURS)}",
        lost(claimed, OLD) == races(claimed) and not lost(claimed, OURS),
        by_clock=True,
    )
    for data, interval in plan.SPEEDS:
        if (data, interval) != (plan.WORST, plan.CLAIMED):
            found = of(results, data, interval)
            yield Check(
                f"{data} data {at_speed(interval)}: how often ours runs out of memory",
                f"0 of {races(found)}",
                str(lost(found, OURS)),
                not lost(found, OURS),
                by_clock=True,
            )
    for data, interval in plan.SPEEDS:
        saved = at_least(
            f"{data} data {at_speed(interval)}: merged with ours in the end, of an "
            "instance",
            [
                one["moments"][-1]["saved_mib"] / one["run"]["instance_mib"]
                for one in of(results, data, interval)
                if one["run"]["configuration"] == OURS
            ],
            ALL_SAVED,
            2,
        )
        yield replace(saved, by_clock=True)


def claim(results: Sequence[Observed], remark: str) -> Claim:
    each = [
        (f"{data} data {at_speed(interval)}", of(results, data, interval))
        for data, interval in plan.SPEEDS
    ]
    return Claim(
        "Figure 8: who runs out of memory (here: how often, by data and speed)",
        "KSM; nuKSM's forest does not",
        "; ".join(
            f"{what}: "
            + ", ".join(f"{name} {lost(found, name)}" for name in (OLD, FOREST, OURS))
            + f" of {races(found)}"
            for what, found in each
        ),
        MEASURED,
        remark,
    )


def on_the_forest(results: Sequence[Observed]) -> tuple[str, str]:
    """Is it so here, as it is in the paper? In full, and in short."""
    old, forest = (lost(results, name) for name in (OLD, FOREST))
    text = (
        "In the paper its forest survives where KSM does not. With all data and at all "
        f"speeds, here KSM runs out of memory in {old} of {races(results)} races, its "
        f"forest in {forest}. "
    )
    if not old:
        return text + "So this says nothing of it.", "KSM does not either"
    if not forest:
        return text + "So it is here.", "so it is here"
    helps = "it helps at times only" if forest < old else "it is no help"
    return (
        f"{text}So {helps}: by its rule a tree is for 100 MiB, which makes few trees "
        "at this size and many at the paper's, and the paper's data are not the worst "
        "case. That an index can decide who survives is repeated here at most, not "
        "that the paper's does.",
        f"at this size the paper's forest is a handful of trees: {helps}, and that "
        "part is not reproduced",
    )


def repetitions(results: Sequence[Observed]) -> str:
    runs = [observed["run"] for observed in results]
    worst, ordinary = (
        how_often(run for run in runs if run["data"] == data)
        for data in (plan.WORST, plan.ORDINARY)
    )
    return (
        f"Each race is run {worst} with the worst data, {ordinary} with ordinary data."
    )


def section(results: Sequence[Observed], raw: str) -> Section:
    caption = "As Figure 8: crosses are where memory ran out (measured)"
    text, remark = on_the_forest(results)
    return Section(
        TITLE,
        [*INTRODUCTION, repetitions(results), text],
        [table(results, raw)],
        [Picture("figure-8", caption, partial(draw, results))],
        list(checks(results)),
        [claim(results, remark)],
    )
