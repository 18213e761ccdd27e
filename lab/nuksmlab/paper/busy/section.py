# SPDX-License-Identifier: GPL-2.0-only
"""Whether it is as fair where instances work while they are merged."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nuksmlab.paper.busy import plan
from nuksmlab.paper.extent import NUKSM, OFF, STOCK, Configuration
from nuksmlab.paper.fairness.section import (
    FAIR,
    POINTS,
    SAVED,
    UNFAIR_PERCENT,
    fairness_claims,
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
    at_least,
    at_most,
    grouped,
    raw,
    sound,
    spread,
)
from nuksmlab.paper.trial import PAGE_BYTES, Busy, Result

TITLE = "The same, while instances work and ksmd goes on"
INTRODUCTION = [
    "In the paper KSM works while instances are measured. Elsewhere in this report all "
    "is merged before, instances read all of their data before they are merged, and "
    "ksmd is stopped. Here nothing waits: instances do operations all the time, none "
    "reads its data for that purpose, and ksmd goes on. They look up words, nine in "
    "ten of them on hot pages, where there are any. Just merged, a page is where those "
    "are who were seen to use it since ksmd came by before, which may be one of two. "
    "Looks then see both, and it goes where its lot says: after "
    f"{plan.LOOKS[NUKSM]} of them accesses have to be remote to the same part for "
    "both, and before that to parts that are closer than with KSM. Looks may take a "
    "whole CPU here, not 0.5 % of one as by default: what emulated CPUs do in that "
    "would take hours.",
    "By Zipf's law the n-th page has 1/n of the first one's accesses: wherever that "
    "one is, one instance is nearer to it. Of such pages it is only wanted that shares "
    "are closer than with KSM.",
    "The last rows are of memory in huge pages, as hosts have it that are not told "
    "otherwise: ksmd splits them, and khugepaged makes new ones meanwhile, where less "
    "than half of one is merged.",
]
PAGE_KIB = PAGE_BYTES // 1024
# Of the data: some of it begins or ends inside of a huge page.
MOST_HUGE = 0.8
MERGED = (STOCK, plan.AT_ONCE, NUKSM)
# Of what KSM's are apart. Where all pages are one's, they are as far apart as KSM's.
CLOSER = 2 / 3


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
        Column("MiB in huge pages: before", MEASURED),
        Column("in the end", MEASURED),
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
                *(
                    spread(one, 1)
                    for one in by_instance(huge_mib(merits, configuration))
                ),
            ]
            used = raw(merits.results(OFF), merits.results(configuration))
            rows.append(Row(cells, used))
    return Table("busy", "Two instances that work while they are merged", columns, rows)


def huge_mib(merits: Merits, configuration: Configuration) -> list[list[float]]:
    """Of each repetition, before merging and after."""
    return [
        [kib / 1024 for kib in result["huge_kib"]]
        for result in merits.results(configuration)
    ]


def checks(merits: Merits) -> Iterator[Check]:
    yield at_least(
        f"{merits.name}: KSM's unfairness shows, difference in %",
        merits.difference_percent(STOCK),
        UNFAIR_PERCENT,
        1,
    )
    by_zipf = percent(merits) == plan.ZIPF_PERCENT
    for configuration in (plan.AT_ONCE, NUKSM) if by_zipf else (plan.AT_ONCE,):
        yield at_most(
            f"{merits.name}, {configuration.name}: remote shares of the accesses "
            "apart, in points, against KSM's",
            merits.remote_apart(configuration),
            CLOSER * min(merits.remote_apart(STOCK)),
        )
    placed = f"{merits.name}, {NUKSM.name}"
    if not by_zipf:
        yield replace(
            at_least(f"{placed}: fairness", merits.fairness(NUKSM), FAIR),
            of_measured_times=True,
        )
        yield at_most(
            f"{placed}: remote shares of the accesses apart, in points",
            merits.remote_apart(NUKSM),
            POINTS,
        )
    yield at_least(
        f"{placed}: MiB saved, against KSM's",
        merits.saved(NUKSM),
        SAVED * min(merits.saved(STOCK)),
        1,
    )


def were_huge(merits: Merits) -> Check:
    """Else nothing was split."""
    return at_least(
        f"{merits.name}: of the data, in huge pages before merging",
        [
            kib / sum(PAGE_KIB * one["pages"] for one in result["instances"])
            for result in merits.results(NUKSM)
            for kib in result["huge_kib"][:1]
        ],
        MOST_HUGE,
    )


def percent(merits: Merits) -> int:
    return merits.results(NUKSM)[0]["trial"]["busy"]["hot_percent"]


def name(busy: Busy) -> str:
    hot = busy["hot_percent"]
    named = {plan.ZIPF_PERCENT: "by Zipf's law", plan.ALL_PERCENT: "none hot"}
    of_pages = named.get(hot, f"{hot} % hot")
    return f"{of_pages}, huge pages" if busy["huge"] else of_pages


def by_pages(results: Sequence[Result]) -> dict[str, dict[str, list[Result]]]:
    """By what pages are like, the results by configuration."""
    several: dict[str, list[Result]] = {}
    for result in results:
        several.setdefault(name(result["trial"]["busy"]), []).append(result)
    return {
        pages: {how: found for (_, how), found in grouped(own).items()}
        for pages, own in several.items()
    }


def section(results: Sequence[Result], hardware: Hardware) -> Section:
    several = [Merits(*one, hardware) for one in by_pages(results).items()]
    huge = [one for one in several if one.results(NUKSM)[0]["trial"]["busy"]["huge"]]
    return Section(
        TITLE,
        INTRODUCTION,
        [table(several)],
        checks=[
            *sound(results),
            *(check for merits in several for check in checks(merits)),
            *(were_huge(merits) for merits in huge),
        ],
        claims=fairness_claims(
            several,
            MERGED,
            "While instances work and ksmd goes on",
            "just merged is nearest to how the paper measures: it has no looks; "
            "elsewhere in this report all is merged before. By Zipf's law a few pages "
            "make a difference by themselves",
        ),
    )
