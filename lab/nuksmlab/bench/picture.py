# SPDX-License-Identifier: GPL-2.0-only
"""The cost of a page over the size of the copies, as a picture."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from nuksmlab.bench.figures import UNPATCHED, Figures, Series

INCHES = (11, 8)
COLUMNS = 2


def draw_series(axes: Axes, figures: Figures, workload: str, series: Series) -> None:
    found = [figures[workload, mib, series] for mib in figures.sizes]
    medians = [f.page_microseconds(f.seconds) for f in found]
    down = [f.page_microseconds(f.seconds - min(f.cpu_seconds)) for f in found]
    up = [f.page_microseconds(max(f.cpu_seconds) - f.seconds) for f in found]
    style = "x--" if series == UNPATCHED else "o-"
    axes.errorbar(
        figures.sizes, medians, [down, up], fmt=style, label=series.name, capsize=3
    )


def draw_workload(axes: Axes, figures: Figures, workload: str) -> None:
    for series in figures.series:
        draw_series(axes, figures, workload, series)
    axes.set_title(workload)
    axes.set_xscale("log", base=2)
    axes.set_xticks(figures.sizes, [str(mib) for mib in figures.sizes])
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
    axes.set_xlabel("MiB per copy")
    axes.set_ylabel("µs per page")
    axes.grid(alpha=0.3)


def draw(figures: Figures, path: Path) -> None:
    canvas = Canvas(figsize=INCHES, layout="constrained")
    rows = -(-len(figures.workloads) // COLUMNS)
    places = canvas.subplots(rows, COLUMNS, squeeze=False).flat
    for axes, workload in zip(places, figures.workloads, strict=False):
        draw_workload(axes, figures, workload)
    handles, labels = places[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=3)
    canvas.suptitle(
        "ksmd's CPU time per page in the scan that merges: median, least and most"
    )
    canvas.savefig(path, dpi=120)
