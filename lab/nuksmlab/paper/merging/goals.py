# SPDX-License-Identifier: GPL-2.0-only
"""What has to hold: nothing is lost, and our index is quicker, or compares less."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from nuksmlab.paper.merging import figures, plan
from nuksmlab.paper.merging.records import Copies, Guests, Images, Observed
from nuksmlab.paper.section import Check, at_least, at_most

# How many times as much our index merges per second; also how many times as quick it
# is in all passes, of which some only note checksums.
LEAST_WORST = 3.0
LEAST_BEST = 0.7
# Chosen before anything was run: images are neither case.
LEAST_OF_IMAGES = 1.0
# They do not change; what a scan finds depends on its order alone.
IMAGES_OFF_PERCENT = 1.0
# Of the time before merging.
MOST_READ = {plan.WORST: 1.4, plan.BEST: 0.5}
# In virtual machines nothing that the emulator's clock says is a goal: of the
# comparisons that the index by content needs.
MOST_COMPARES = 0.5
# For each page that it merges: none is merged unseen.
LEAST_COMPARES = 1.0
# They live, and what is equal in them is not quite the same each time.
MOST_OFF_PERCENT = 10.0


def all_the_same(results: Sequence[Copies]) -> Check:
    """Every byte of every copy, when all are merged."""
    bad = sum(each["bad_pages"] for each in results)
    what = "pages of copies that have a wrong byte after merging"
    return Check(what, "0", str(bad), not bad)


def all_merged(results: Sequence[Copies], case: str) -> Check:
    """But for the first copy in the worst case, which has no twin."""
    shares = [
        merged / results[0]["run"]["mib"]
        for point in figures.points(results, case)
        for pair in point.pairs(lambda one: one.mib)
        for merged in pair
    ]
    return at_least(f"{case}: share of each copy that is merged", shares, 0.99)


def in_all_passes(
    results: Sequence[Observed], case: str, what: str, least: float
) -> Check:
    """A pass that merges nothing takes time, too, and so does what has no twin."""
    ratios = figures.times_as_quick(results, case)
    return at_least(
        f"{what} in all passes: times as quick with our index", ratios, least, 2
    )


def speed(results: Sequence[Copies]) -> list[Check]:
    worst = [
        at_least(
            f"worst, copy {point.added}: times as many MiB per second with our index",
            point.ratios(),
            LEAST_WORST,
            1,
        )
        for point in figures.points(results, plan.WORST)
    ]
    by_copy = [point.ratios() for point in figures.points(results, plan.BEST)]
    best = [statistics.median(one) for one in zip(*by_copy, strict=True)]
    what = "best, median of all copies: times as many MiB per second with our index"
    return [
        *worst,
        at_least(what, best, LEAST_BEST),
        in_all_passes(results, plan.WORST, "worst, all copies", LEAST_WORST),
        in_all_passes(results, plan.BEST, "best, all copies", LEAST_BEST),
    ]


def reading(results: Sequence[Copies]) -> list[Check]:
    """As in the mail: no slower, and where all is one page, much quicker."""
    checks = []
    for case in plan.CASES:
        for name in plan.INDEXES:
            ratios = figures.reading(results, case, name).ratios()
            what = f"{case}, {name}: reading merged memory, of the time before"
            checks.append(at_most(what, ratios, MOST_READ[case]))
    return checks


def of_copies(results: Sequence[Copies]) -> list[Check]:
    timed = [*speed(results), *reading(results)]
    return [
        all_the_same(results),
        *(all_merged(results, case) for case in plan.CASES),
        *(replace(check, by_clock=True) for check in timed),
    ]


def of_images(results: Sequence[Images]) -> list[Check]:
    bad = sum(each["bad_pages"] for each in results)
    checks = [Check("pages that differ from their image", "0", str(bad), not bad)]
    for point in figures.points(results, plan.IMAGES):
        what = f"{point.added}: MiB merged by the two indexes, difference in %"
        checks.append(at_most(what, point.off_percent(), IMAGES_OFF_PERCENT, 1))
        what = f"{point.added}: times as many MiB per second with our index"
        timed = at_least(what, point.ratios(), LEAST_OF_IMAGES, 1)
        checks.append(replace(timed, by_clock=True))
    # Most of an image is one empty page: that is the best case.
    in_all = in_all_passes(results, plan.IMAGES, "all images", LEAST_BEST)
    return [*checks, replace(in_all, by_clock=True)]


def right_answers(results: Sequence[Guests], expected: str) -> Check:
    wrong = [
        f"run {line}, virtual machine {number}"
        for line, each in enumerate(results, 1)
        for number, answer in enumerate(each["answers"], 1)
        if answer != expected
    ]
    return Check(
        "answers of merged virtual machines that are those of a run on the host",
        "all",
        f"wrong: {'; '.join(wrong)}" if wrong else "all",
        not wrong,
    )


def of_guests(results: Sequence[Guests], expected: str) -> list[Check]:
    checks = [right_answers(results, expected)]
    for point in figures.points(results, plan.REAL):
        name = f"virtual machines, {point.added}"
        what = f"{name}: MiB merged by the two indexes, difference in %"
        checks.append(at_most(what, point.off_percent(), MOST_OFF_PERCENT, 1))
        pairs = point.pairs(lambda one: one.compares_per_page)
        of_old = [ours / old if old else 1.0 for old, ours in pairs]
        what = f"{name}: comparisons with our index, of those with the old one"
        checks.append(at_most(what, of_old, MOST_COMPARES))
        what = f"{name}: comparisons for each page merged with our index"
        checks.append(at_least(what, [ours for _, ours in pairs], LEAST_COMPARES))
    return checks
