# SPDX-License-Identifier: GPL-2.0-only
"""Whether it is as fair where instances work while they are merged."""

from collections.abc import Iterator, Sequence

from nuksmlab.paper.busy import plan
from nuksmlab.paper.extent import NUKSM, OFF, STOCK
from nuksmlab.paper.fairness.section import (
    FAIR,
    POINTS,
    SAVED,
    UNFAIR_PERCENT,
    chance_points,
)
from nuksmlab.paper.merits import Merits, by_instance
from nuksmlab.paper.model import Hardware
from nuksmlab.paper.section import (
    MEASURED,
    MODELLED,
    Check,
    Column,
    Row,
    Section,
    Table,
    answers,
    at_least,
    at_most,
    counted,
    grouped,
    raw,
    spread,
)
from nuksmlab.paper.trial import Result

TITLE = "The same, while instances work and ksmd goes on"
INTRODUCTION = [
    "In the paper KSM works while instances are measured. Elsewhere in this report all "
    "is merged before, instances read all of their data before they are merged, and "
    "ksmd is stopped. Here nothing waits: instances do operations all the time, none "
    "reads its data for that purpose, and ksmd goes on. They look up words, nine in "
    "ten of them on hot pages, where there are any. Just merged, a page is where those "
    "are who were seen to use it since ksmd came by before, which may be one of two. "
    "Looks then see both, and it goes where its lot says: after "
    f"{plan.LOOKS[NUKSM]} of them it has to be fair.",
]
MERGED = (STOCK, plan.AT_ONCE, NUKSM)


def table(several: Sequence[Merits]) -> Table:
    columns = [
        Column("pages"),
        Column("configuration"),
        Column("fairness", MODELLED),
        Column("the slower one is slower by, %", MODELLED),
        Column("remote accesses, %: instance 0", MEASURED),
        Column("instance 1", MEASURED),
        Column("local pages, %: instance 0", MEASURED),
        Column("instance 1", MEASURED),
        Column("MiB saved", MEASURED),
    ]
    rows = []
    for merits in several:
        for configuration in MERGED:
            cells = [
                merits.name,
                configuration.name,
                spread(merits.fairness(configuration), 3),
                spread(merits.difference_percent(configuration), 1),
                *(spread(one, 1) for one in by_instance(merits.remote(configuration))),
                *(
                    spread(one, 1)
                    for one in by_instance(merits.local_pages(configuration))
                ),
                spread(merits.saved(configuration), 1),
            ]
            used = raw(merits.results(OFF), merits.results(configuration))
            rows.append(Row(cells, used))
    return Table("busy", "Two instances that work while they are merged", columns, rows)


def checks(merits: Merits) -> Iterator[Check]:
    yield at_least(
        f"{merits.name}: KSM's unfairness shows, difference in %",
        merits.difference_percent(STOCK),
        UNFAIR_PERCENT,
        1,
    )
    placed = f"{merits.name}, {NUKSM.name}"
    yield at_least(f"{placed}: fairness", merits.fairness(NUKSM), FAIR)
    yield at_most(
        f"{placed}: remote shares of the accesses apart, in points",
        merits.remote_apart(NUKSM),
        POINTS,
    )
    yield at_most(
        f"{placed}: points off half of the pages",
        [abs(share - 50) for one in merits.local_pages(NUKSM) for share in one],
        chance_points(merits.results(NUKSM), 1 / 2),
    )
    yield at_least(
        f"{placed}: MiB saved, against KSM's",
        merits.saved(NUKSM),
        SAVED * min(merits.saved(STOCK)),
        1,
    )


def name(hot_percent: int) -> str:
    return f"{hot_percent} % hot" if hot_percent < 100 else "none hot"


def by_heat(
    results: Sequence[Result],
) -> Iterator[tuple[int, dict[str, list[Result]]]]:
    """Of each part of the pages that is hot, the results by configuration."""
    for hot in plan.HOT:
        own = [one for one in results if one["trial"]["busy"]["hot_percent"] == hot]
        yield hot, {how: found for (_, how), found in grouped(own).items()}


def section(results: Sequence[Result], hardware: Hardware) -> Section:
    several = [Merits(name(hot), one, hardware) for hot, one in by_heat(results)]
    return Section(
        TITLE,
        INTRODUCTION,
        [table(several)],
        checks=[
            answers(results),
            counted(results),
            *(check for merits in several for check in checks(merits)),
        ],
    )
