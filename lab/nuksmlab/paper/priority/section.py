# SPDX-License-Identifier: GPL-2.0-only
"""Figures 4 and 7 and Table III, from the results; the goals."""

from collections.abc import Iterator, Sequence
from functools import partial

from matplotlib.figure import Figure as Canvas

from nuksmlab import database
from nuksmlab.paper import model, sensitivity
from nuksmlab.paper.extent import STOCK, Configuration
from nuksmlab.paper.fairness.section import chance_points
from nuksmlab.paper.merits import by_instance
from nuksmlab.paper.model import Hardware
from nuksmlab.paper.priority import plan
from nuksmlab.paper.priority.plan import BY_PRIORITY, CORRECTED, NicePair
from nuksmlab.paper.section import (
    MEASURED,
    MODELLED,
    PUBLISHED,
    UNKNOWN,
    Check,
    Claim,
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
    legend,
    number,
    raw,
    reach,
    sound,
    spread,
    workloads,
)
from nuksmlab.paper.sensitivity import Quantity
from nuksmlab.paper.trial import Result, local_pages_percent, merged_share

TITLE = "Figures 4 and 7, Table III: priorities"
PLACED = (BY_PRIORITY, CORRECTED)
# What is published is rounded.
POINT = 1.0
# Figure 4's axis, at least.
USUAL_THROUGHPUT = (0.5, 1.05)


def pairs() -> list[NicePair]:
    return plan.published()["table_3"]


def local_percent(results: Sequence[Result]) -> list[list[float]]:
    """Of each instance's merged pages, in each repetition."""
    columns = zip(*(result["instances"] for result in results), strict=True)
    return [list(map(local_pages_percent, column)) for column in columns]


def all_shared(groups: Grouped) -> list[str]:
    """Workloads all of whose pages are merged, one with one of the other instance.

    A database has pages of its own, and many that are equal to each other.
    """
    return [name for name in workloads(groups) if name != database.NAME]


def table_3(groups: Grouped) -> Table:
    columns = [Column("workload"), Column("configuration"), Column("nice: VM-0, VM-1")]
    for instance in (0, 1):
        columns += [
            Column(f"local %, VM-{instance}: {BY_PRIORITY.name}", MEASURED),
            Column(CORRECTED.name, MEASURED),
            Column("nuKSM", PUBLISHED),
        ]
    rows = []
    for workload in all_shared(groups):
        for pair in pairs():
            found = [
                groups[workload, plan.named(configuration, pair).name]
                for configuration in PLACED
            ]
            cells = [workload, pair["name"], "{}, {}".format(*pair["nice"])]
            for instance in (0, 1):
                cells += [spread(local_percent(some)[instance], 1) for some in found]
                cells.append(number(pair["local_percent"][instance], 0))
            rows.append(Row(cells, raw(*found)))
    title = "Table III: merged pages that are local, by priority"
    return Table("table-3", title, columns, rows)


def normalized(
    groups: Grouped, hardware: Hardware, workload: str, name: str
) -> list[list[float]]:
    """To the first instance with KSM in the same repetition; of each repetition."""
    stock = model.seconds_of(groups[workload, STOCK.name], hardware)
    several = model.seconds_of(groups[workload, name], hardware)
    return [
        [time / first for time in times]
        for times, (first, _) in zip(several, stock, strict=True)
    ]


def shorter_percent(favoured: float, other: float) -> float:
    """By how much a favoured instance's time is below the other's."""
    return 100 * (1 - favoured / other)


def figure_7(groups: Grouped, hardware: Hardware) -> Table:
    columns = [
        Column("workload"),
        Column("configuration"),
        Column("instance 0", MODELLED),
        Column("instance 1", MODELLED),
        Column("instance 0 shorter by, %", MODELLED),
        Column("shorter by, %", PUBLISHED),
    ]
    known = plan.published()["figure_7"]
    rows = []
    for workload in workloads(groups):
        names = {"KSM": STOCK.name} | {
            pair["name"]: plan.named(BY_PRIORITY, pair).name for pair in pairs()
        }
        for shown, name in names.items():
            times = normalized(groups, hardware, workload, name)
            paper = known.get(workload) if shown == "C-10:1" else None
            rows.append(
                Row(
                    [
                        workload,
                        shown,
                        *map(spread, by_instance(times)),
                        spread([shorter_percent(*each) for each in times], 1),
                        number(paper, 0),
                    ],
                    raw(groups[workload, name]),
                )
            )
    not_run = [UNKNOWN] * 3
    for workload in (name for name in known if name not in workloads(groups)):
        rows.append(Row([workload, "C-10:1", *not_run, number(known[workload], 0)], []))
    title = "Figure 7: run time by priority, normalized to instance 0 with KSM"
    return Table("figure-7", title, columns, rows)


def shorter(groups: Grouped, hardware: Hardware, workload: str) -> list[float]:
    """Of each repetition, by how much instance 0's run is shorter in C-10:1."""
    name = plan.named(BY_PRIORITY, pairs()[0]).name
    times = model.seconds_of(groups[workload, name], hardware)
    return [shorter_percent(*each) for each in times]


def quantities(groups: Grouped) -> list[Quantity]:
    known = plan.published()["figure_7"]
    name = plan.named(BY_PRIORITY, pairs()[0]).name
    return [
        Quantity(
            workload,
            partial(shorter, groups, workload=workload),
            known.get(workload),
            raw(groups[workload, name]),
        )
        for workload in workloads(groups)
    ]


def throughput(
    results: Sequence[Result], hardware: Hardware
) -> Iterator[tuple[float, list[float]]]:
    """Percent merged; each instance's throughput relative to its own unmerged."""
    before, *_ = several = model.seconds_of(results, hardware)
    for result, times in zip(results, several, strict=True):
        relative = [first / now for first, now in zip(before, times, strict=True)]
        yield 100 * merged_share(result), relative


def figure_4(groups: Grouped, hardware: Hardware) -> Table:
    columns = [
        Column("configuration"),
        Column("merged, %", MEASURED),
        Column(f"instance 0, nice {plan.SUBVERTED_NICES[0]}", MODELLED),
        Column(f"instance 1, nice {plan.SUBVERTED_NICES[1]}", MODELLED),
        Column("instance 1's fall in the end, %", MODELLED),
        Column("fall, %", PUBLISHED),
    ]
    rows = []
    for configuration in (STOCK, BY_PRIORITY):
        results = groups["btree", configuration.name]
        series = list(throughput(results, hardware))
        for number_, (result, (merged, relative)) in enumerate(
            zip(results, series, strict=True), 1
        ):
            last = number_ == len(series)
            fall = number(100 * (1 - relative[1]), 1) if last else UNKNOWN
            paper = (
                f"over {plan.published()['figure_4']['drop_percent']:.0f}"
                if last and configuration == STOCK
                else UNKNOWN
            )
            cells = [configuration.name, number(merged, 0), *map(number, relative)]
            rows.append(Row([*cells, fall, paper], [result["raw"]]))
    title = "Figure 4: BTree's throughput while pages are merged, relative to unmerged"
    return Table("figure-4", title, columns, rows)


def draw_throughput(groups: Grouped, hardware: Hardware, canvas: Canvas) -> None:
    several = canvas.subplots(1, 2, sharey=True)
    values = list(USUAL_THROUGHPUT)  # where it is measured, there may be any
    for axes, configuration in zip(several, (STOCK, BY_PRIORITY), strict=True):
        series = list(throughput(groups["btree", configuration.name], hardware))
        for instance, nice in enumerate(plan.SUBVERTED_NICES):
            axes.plot(
                [merged for merged, _ in series],
                [relative[instance] for _, relative in series],
                "o-",
                label=f"instance {instance}, nice {nice}",
            )
        axes.set_title(configuration.name)
        axes.set_xlabel("merged, %")
        axes.grid(alpha=0.3)
        values += [value for _, relative in series for value in relative]
    several[0].set_ylim(min(values), max(values))
    several[0].set_ylabel("throughput relative to unmerged")
    legend(canvas, several[0])


def draw_times(groups: Grouped, hardware: Hardware, canvas: Canvas) -> None:
    names = workloads(groups)
    several = canvas.subplots(1, len(names), sharey=True, squeeze=False)[0]
    shown = [(pair["name"], plan.named(BY_PRIORITY, pair).name) for pair in pairs()]
    shown.insert(0, ("KSM", STOCK.name))
    for axes, workload in zip(several, names, strict=True):
        for instance in (0, 1):
            for position, (_, name) in enumerate(shown):
                times = normalized(groups, hardware, workload, name)
                bar(
                    axes,
                    position + (instance - 0.5) * 0.4,
                    by_instance(times)[instance],
                    0.38,
                    color=("tab:blue", "tab:orange")[instance],
                    label=f"instance {instance}" if position == 0 else None,
                )
        axes.set_xticks(range(len(shown)), [name for name, _ in shown], rotation=20)
        axes.set_title(workload)
        axes.grid(axis="y", alpha=0.3)
    several[0].set_ylabel("run time, normalized")
    legend(canvas, several[0])


def share_checks(groups: Grouped) -> Iterator[Check]:
    for workload in all_shared(groups):
        for pair in pairs():
            for configuration in PLACED:
                name = plan.named(configuration, pair).name
                off = [
                    abs(share - published)
                    for shares, published in zip(
                        local_percent(groups[workload, name]),
                        pair["local_percent"],
                        strict=True,
                    )
                    for share in shares
                ]
                chance = max(
                    chance_points(groups[workload, name], share / 100)
                    for share in pair["local_percent"]
                )
                limit = POINT + (chance if configuration is BY_PRIORITY else 0.0)
                yield at_most(
                    f"{workload}, {name}: points off the published share", off, limit
                )


def run_time_checks(groups: Grouped, hardware: Hardware) -> Iterator[Check]:
    """For what Table III cannot judge: instance 1 is favoured, and KSM never does."""
    pair = pairs()[-1]
    for workload in workloads(groups):
        if workload in all_shared(groups):
            continue
        for configuration in PLACED:
            name = plan.named(configuration, pair).name
            times = normalized(groups, hardware, workload, name)
            yield at_least(
                f"{workload}, {name}: instance 1's run is shorter, by %",
                [shorter_percent(second, first) for first, second in times],
                plan.published()["figure_7"][workload],
                1,
            )


def fall_percent(
    groups: Grouped, hardware: Hardware, configuration: Configuration
) -> float:
    """Of the favoured instance's throughput, when all is merged."""
    *_, (_, relative) = throughput(groups["btree", configuration.name], hardware)
    return 100 * (1 - relative[1])


def falls(groups: Grouped) -> list[Quantity]:
    """On any hardware. The paper says more than so much, of KSM's."""
    known = {STOCK: plan.published()["figure_4"]["drop_percent"]}

    def on(hardware: Hardware, configuration: Configuration) -> list[float]:
        return [fall_percent(groups, hardware, configuration)]

    return [
        Quantity(
            configuration.name,
            partial(on, configuration=configuration),
            known.get(configuration),
            raw(groups["btree", configuration.name]),
            or_more=True,
        )
        for configuration in (STOCK, BY_PRIORITY)
    ]


def throughput_checks(groups: Grouped, hardware: Hardware) -> Iterator[Check]:
    yield at_least(
        "KSM subverts priority: the favoured instance's throughput falls, in %",
        [fall_percent(groups, hardware, STOCK)],
        plan.published()["figure_4"]["drop_percent"],
        1,
    )
    yield at_most(
        "nuKSM keeps priority: the same fall, in %",
        [fall_percent(groups, hardware, BY_PRIORITY)],
        5.0,
        1,
    )


def pair_claims(groups: Grouped, hardware: Hardware) -> Iterator[Claim]:
    off = [
        share - published
        for workload in all_shared(groups)
        for pair in pairs()
        for shares, published in zip(
            local_percent(groups[workload, plan.named(BY_PRIORITY, pair).name]),
            pair["local_percent"],
            strict=True,
        )
        for share in shares
    ]
    yield Claim(
        "Table III: local share of the merged pages by priority, off the published, "
        "in points",
        "0",
        reach(off, 1),
        MEASURED,
        "where the kernel puts pages is its own doing, emulated or not",
    )
    yield Claim(
        "Figure 7, C-10:1: the favoured instance's run is shorter by, %",
        reach(plan.published()["figure_7"].values()),
        reach(
            percent
            for workload in workloads(groups)
            for percent in shorter(groups, hardware, workload)
        ),
        MODELLED,
        "accesses wait for each other here, and overlap there, which "
        + sensitivity.explained(quantities(groups), hardware),
    )


def stage_claims(groups: Grouped, hardware: Hardware) -> Iterator[Claim]:
    published = plan.published()["figure_4"]["drop_percent"]
    for configuration, known in ((STOCK, f"over {published:.0f}"), (BY_PRIORITY, "-")):
        yield Claim(
            f"Figure 4, {configuration.name}: the favoured instance's throughput "
            "falls by, %",
            known,
            number(fall_percent(groups, hardware, configuration), 1),
            MODELLED,
            "one run; accesses wait for each other here: see the table of other "
            "hardware",
        )


INTRODUCTION = [
    "The same two instances with nice values; nuKSM and nuksm place give each a part "
    "of the merged pages in proportion to 1/(nice + 21). MySQL is run in full only. It "
    "is not in Table III: some of its pages are its own, and many are equal to others "
    "of the same instance.",
    "Figure 4's horizontal axis is time in the paper. Here KSM is stopped after each "
    "quarter of its work, and throughput is measured then. The lowest priority is "
    "nice 19, where the paper says 20, which Linux does not have.",
]


def split(results: Sequence[Result]) -> tuple[list[Result], list[Result]]:
    """The five pairs; the throughput."""
    staged = [result["trial"]["stages"] > 1 for result in results]
    several = list(zip(results, staged, strict=True))
    return [r for r, s in several if not s], [r for r, s in several if s]


def section(results: Sequence[Result], hardware: Hardware) -> Section:
    by_pair, by_stage = split(results)
    groups, stages = grouped(by_pair), grouped(by_stage)
    tables, pictures, checks = [], [], sound(results)
    claims: list[Claim] = []
    if stages:
        tables.append(figure_4(stages, hardware))
        draw = partial(draw_throughput, stages, hardware)
        caption = "As Figure 4: BTree's throughput while KSM merges (modelled)"
        pictures.append(Picture("figure-4", caption, draw))
        title = "Figure 4: the favoured instance's throughput falls by, %"
        tables.append(
            sensitivity.table("figure-4-bands", title, falls(stages), hardware)
        )
        pictures.append(
            sensitivity.picture(
                "figure-4-bands", title, "falls by, %", falls(stages), hardware
            )
        )
        checks += throughput_checks(stages, hardware)
        claims += stage_claims(stages, hardware)
    if groups:
        tables += [table_3(groups), figure_7(groups, hardware)]
        title = "Figure 7, C-10:1: by how much instance 0's run is shorter, %"
        found = quantities(groups)
        tables.append(sensitivity.table("figure-7-bands", title, found, hardware))
        pictures.append(
            sensitivity.picture(
                "figure-7-bands", title, "shorter by, %", found, hardware
            )
        )
        checks += [*share_checks(groups), *run_time_checks(groups, hardware)]
        claims += pair_claims(groups, hardware)
    return Section(TITLE, INTRODUCTION, tables, pictures, checks, claims)
