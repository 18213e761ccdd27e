# SPDX-License-Identifier: GPL-2.0-only
"""MiB merged per second, and how long reading takes, beside the published."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from nuksmlab.paper.merging import figures, goals, pictures, plan
from nuksmlab.paper.merging.figures import Merged, Point
from nuksmlab.paper.merging.pictures import COMPARED
from nuksmlab.paper.merging.records import Copies, Guests, Images, Observed
from nuksmlab.paper.runner import Complete
from nuksmlab.paper.section import (
    MEASURED,
    PUBLISHED,
    Column,
    Picture,
    Row,
    Section,
    Table,
    how_often,
    number,
    spread,
)

TITLE = "KSM's own benchmarks of 2009: how quickly pages are merged"
INTRODUCTION = [
    "Published here: Increasing memory density by using KSM (Linux Symposium 2009), "
    "section 22 and Figure 8, and the mail of March 2009 with the program ksmpages. "
    "Their index, by content and with one tree, is stock's to this day.",
    "Copies of a program come one after the other, each when those before it are "
    "merged. In the worst case the pages of a copy differ in their last bytes only, in "
    "the best case all are the same. The published copies have 1 GiB, on a processor "
    "of 2008. Ours run in User-Mode Linux at native speed: the rates cannot be "
    "compared with the published ones, those of the two indexes can.",
    "A rate is what was merged, by ksmd's CPU time (which the host counts) in the "
    "passes that merge. As in the mail, a pass that only notes checksums of new pages "
    "is not one of them. But ours looks for new pages in the first one already: so CPU "
    "time is judged of all passes, too, and comparisons are counted in all. The index "
    "by content is this kernel's, told to do as stock does, and slower than the "
    "unpatched one's by up to a third where make bench measured both "
    "(docs/benchmarks.md).",
    "Images of guests are what their memory was in a moment: Debian's kernel and a "
    "small Debian, which has read its files and written random data. Each is held by a "
    "process, and merged at native speed when those before it are. Most of a guest's "
    "memory is empty, and its pages one page.",
    "Virtual machines run nested in an emulated machine, in which a second of CPU time "
    "is the emulator's: only the ratio says something. Comparisons of pages' contents "
    "are counted, and depend on no clock.",
]
LINUX_SINCE = (
    "In the mail a third copy is merged in the first pass, without a checksum. Linux "
    "has since come to look into no tree before a page's checksum has stayed the same "
    "for a pass, so that here it is the second pass that merges."
)


def raw_lines(results: Sequence[Observed], case: str, path: str) -> list[str]:
    return [f"{path}#{line}" for line in figures.lines(results, case)]


def rate_columns() -> list[Column]:
    return [
        Column("MiB merged", MEASURED),
        Column(f"MiB merged per second: {plan.OLD}", MEASURED),
        Column(plan.OURS, MEASURED),
        Column("times as many", MEASURED),
        Column(f"ksmd's CPU time in all passes, s: {plan.OLD}", MEASURED),
        Column(plan.OURS, MEASURED),
        Column(f"{COMPARED}: {plan.OLD}", MEASURED),
        Column(plan.OURS, MEASURED),
    ]


def rate_cells(point: Point) -> list[str]:
    def both(value: Callable[[Merged], float], digits: int) -> list[str]:
        return [spread(point.each(name, value), digits) for name in plan.INDEXES]

    return [
        spread(point.each(plan.OLD, lambda one: one.mib), 0),
        *both(lambda one: one.mib_per_second, 0),
        spread(point.ratios(), 1),
        *both(lambda one: one.all_seconds, 2),
        *both(lambda one: one.compares_per_page, 1),
    ]


def rates(results: Sequence[Copies], path: str) -> Table:
    paper = plan.published()["paper"]["mb_per_second"]
    columns = [
        *(Column("case"), Column("copy"), Column("MiB of a copy")),
        *rate_columns(),
        Column("MiB merged per second: mail", PUBLISHED),
        Column("paper, MB, of any copy", PUBLISHED),
    ]
    rows = [
        Row(
            [
                *(case, point.added, str(results[0]["run"]["mib"])),
                *rate_cells(point),
                number(figures.mail_rate(point), 1),
                number(paper[case]),
            ],
            raw_lines(results, case, path),
        )
        for case in plan.CASES
        for point in figures.points(results, case)
    ]
    title = "Figure 8 of 2009, and the mail: the worst case and the best"
    return Table("merging-copies", title, columns, rows)


def images(results: Sequence[Images], path: str) -> Table:
    columns = [Column("image"), Column("MiB of memory"), *rate_columns()]
    rows = [
        Row(
            [point.added, str(results[0]["run"]["mib"]), *rate_cells(point)],
            raw_lines(results, plan.IMAGES, path),
        )
        for point in figures.points(results, plan.IMAGES)
    ]
    title = "Images of guests, at native speed"
    return Table("merging-images", title, columns, rows)


def machines(results: Sequence[Guests], path: str) -> Table:
    paper = plan.published()["paper"]["mb_per_second"][plan.REAL]
    columns = [
        *(Column("virtual machine"), Column("MiB of data in each")),
        *rate_columns(),
        Column("MB merged per second: paper, not emulated", PUBLISHED),
    ]
    rows = [
        Row(
            [
                *(point.added, str(results[0]["run"]["mib"])),
                *rate_cells(point),
                number(paper),
            ],
            raw_lines(results, plan.REAL, path),
        )
        for point in figures.points(results, plan.REAL)
    ]
    title = "Figure 8 of 2009: virtual machines by KVM, under emulation"
    return Table("merging-machines", title, columns, rows)


def reads(results: Sequence[Copies], path: str) -> Table:
    columns = [Column("case"), Column("index")]
    for kind in (MEASURED, PUBLISHED):
        names = ("ns per page, before merging", "after", "after / before")
        columns += [Column(name, kind) for name in names]
    rows = []
    for case in plan.CASES:
        there = figures.published_reading(case)
        for name in plan.INDEXES:
            here = figures.reading(results, case, name)
            cells = [
                spread(values, digits)
                for one in (here, there)
                for values, digits in (
                    (one.before, 1),
                    (one.after, 1),
                    (one.ratios(), 2),
                )
            ]
            rows.append(Row([case, name, *cells], raw_lines(results, case, path)))
    title = (
        "The mail's read loop, a word of each page of a copy: before any merging, and "
        f"when {plan.READ_COPIES} copies are merged"
    )
    return Table("merging-reads", title, columns, rows)


def repetitions(what: str, results: Sequence[Observed]) -> str:
    times = how_often(each["run"] for each in results)
    return f"{what} are merged {times} with either index."


def of_copies(results: Sequence[Copies], _done: Complete, path: str) -> Section:
    rate = "MiB merged per second of ksmd, by case and copy"
    read = "The read loop, here (measured) and in the mail (published)"
    return Section(
        TITLE,
        [repetitions("Copies", results), LINUX_SINCE],
        [rates(results, path), reads(results, path)],
        [
            Picture("merging-copies", rate, partial(pictures.rates, results)),
            Picture("merging-reads", read, partial(pictures.reads, results)),
        ],
        goals.of_copies(results),
    )


def of_images(results: Sequence[Images], _done: Complete, path: str) -> Section:
    caption = "Images of guests: saved, by ksmd's CPU time (measured)"
    return Section(
        TITLE,
        [repetitions("Images", results)],
        [images(results, path)],
        [Picture("merging-images", caption, partial(pictures.images, results))],
        goals.of_images(results),
    )


def of_guests(results: Sequence[Guests], done: Complete, path: str) -> Section:
    caption = "Virtual machines, under emulation (measured)"
    return Section(
        TITLE,
        [repetitions("Virtual machines", results)],
        [machines(results, path)],
        [Picture("merging-machines", caption, partial(pictures.machines, results))],
        goals.of_guests(results, done["expected"][plan.WORKLOAD]),
    )


# By the folder of raw samples.
PARTS: dict[str, Callable[[list[Any], Complete, str], Section]] = {
    plan.COPIES_PART: of_copies,
    plan.IMAGES_PART: of_images,
    plan.GUESTS_PART: of_guests,
}


def section(parts: Sequence[Section]) -> Section:
    return Section(
        TITLE,
        INTRODUCTION + [text for part in parts for text in part.paragraphs],
        [table for part in parts for table in part.tables],
        [picture for part in parts for picture in part.pictures],
        [check for part in parts for check in part.checks],
    )
