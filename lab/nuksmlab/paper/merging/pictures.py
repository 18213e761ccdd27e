# SPDX-License-Identifier: GPL-2.0-only
"""Bars: rates, reading, and virtual machines."""

import statistics
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from nuksmlab.bench.records import PAGE_BYTES
from nuksmlab.paper.merging import figures, plan
from nuksmlab.paper.merging.records import Copies, Guests, Images

COMPARED = "comparisons of contents per page merged"


def bars(
    axes: Axes,
    names: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    label: str,
) -> None:
    width = 0.8 / len(series)
    for place, (name, values) in enumerate(series.items()):
        known = [(at, value) for at, value in enumerate(values) if value is not None]
        drawn = axes.bar(
            [at + (place - (len(series) - 1) / 2) * width for at, _ in known],
            [value for _, value in known],
            width,
            label=name,
        )
        labels = [f"{value:.{0 if value >= 100 else 1}f}" for _, value in known]
        axes.bar_label(drawn, labels, fontsize="x-small")
    axes.set_xticks(range(len(names)), names, fontsize="small")
    axes.set_ylabel(label)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(
        fontsize="small", ncols=len(series), loc="lower center", bbox_to_anchor=(0.5, 1)
    )


def rates(results: Sequence[Copies], canvas: Canvas) -> None:
    points = [point for case in plan.CASES for point in figures.points(results, case)]
    series: dict[str, list[float | None]] = {
        f"{name} (measured)": [
            statistics.median(point.each(name, lambda one: one.mib_per_second))
            for point in points
        ]
        for name in plan.INDEXES
    }
    series["mail, 2009 (published)"] = [figures.mail_rate(point) for point in points]
    axes = canvas.subplots()
    names = [f"{point.case},\ncopy {point.added}" for point in points]
    bars(axes, names, series, "MiB merged per second of ksmd")
    axes.set_yscale("log")
    axes.set_ylim(bottom=1)


def images(results: Sequence[Images], canvas: Canvas) -> None:
    """A point for each pass of each repetition."""
    axes = canvas.subplots()
    for color, name in zip(("tab:red", "tab:blue"), plan.INDEXES, strict=True):
        for observed in figures.of(results, plan.IMAGES, name):
            seconds, points = 0.0, [(0.0, 0.0)]
            for step in observed["steps"]:
                for one, took in zip(step["passes"], step["cpu_seconds"], strict=True):
                    seconds += took
                    pages = one["after"]["pages_sharing"] or 0
                    points.append((seconds, pages * PAGE_BYTES / 2**20))
            first = observed["run"]["repetition"] == 0
            label = f"{name} (measured)" if first else None
            axes.plot(*zip(*points, strict=True), "o-", color=color, label=label)
    axes.set_xlabel("ksmd's CPU time, s")
    axes.set_ylabel("MiB saved")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def reads(results: Sequence[Copies], canvas: Canvas) -> None:
    several = {
        f"{case},\n{name}": figures.reading(results, case, name).medians()
        for case in plan.CASES
        for name in plan.INDEXES
    } | {
        f"{case},\nmail (published)": figures.published_reading(case).medians()
        for case in plan.CASES
    }
    series = {
        "before merging": [before for before, _ in several.values()],
        "after": [after for _, after in several.values()],
    }
    bars(canvas.subplots(), list(several), series, "ns per page read")


def machines(results: Sequence[Guests], canvas: Canvas) -> None:
    points = figures.points(results, plan.REAL)
    left, right = canvas.subplots(1, 2)
    names = [f"machine {point.added}" for point in points]
    for axes, label, value in (
        (left, "MiB merged per second of ksmd", lambda one: one.mib_per_second),
        (right, COMPARED, lambda one: one.compares_per_page),
    ):
        series = {
            name: [statistics.median(point.each(name, value)) for point in points]
            for name in plan.INDEXES
        }
        bars(axes, names, series, label)
