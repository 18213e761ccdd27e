# SPDX-License-Identifier: GPL-2.0-only
"""The figures as Markdown."""

import statistics
from collections.abc import Iterable, Sequence

from nuksmlab.bench.figures import BASELINE, UNPATCHED, Figure, Figures
from nuksmlab.bench.goals import Goal, listing
from nuksmlab.bench.host import Host

COST = "µs of ksmd's CPU time per page (MiB merged per second of it)"
COMPARED = "contents compared per page: how often (bytes in all)"


def row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(row(line) for line in lines)


def cost(figure: Figure) -> str:
    microseconds = f"{figure.page_microseconds(figure.seconds):.2f}"
    if not figure.merged_mib:
        return microseconds
    return f"{microseconds} ({figure.mib_per_second:,.0f})"


def compared(figure: Figure) -> str:
    if figure.compares_per_page is None:
        return "-"
    often = f"{figure.compares_per_page:.1f}"
    if figure.compared_bytes_per_page is None:
        return often
    return f"{often} ({figure.compared_bytes_per_page:,.0f})"


def costs(figures: Figures, workload: str) -> str:
    return markdown(
        ["MiB per copy", *(series.name for series in figures.series)],
        [
            [str(mib), *(cost(figures[workload, mib, s]) for s in figures.series)]
            for mib in figures.sizes
        ],
    )


def comparisons(figures: Figures) -> str:
    """At the largest size; they do not depend on the machine."""
    largest = figures.sizes[-1]
    return markdown(
        [f"{largest} MiB", *(series.name for series in figures.series)],
        [
            [
                workload,
                *(compared(figures[workload, largest, s]) for s in figures.series),
            ]
            for workload in figures.workloads
        ],
    )


def emulation(figures: Figures) -> str:
    """Our kernel's time with stock's algorithm, in parts of the unpatched one's."""
    rows = []
    for workload in figures.workloads:
        ratios = [
            statistics.median(figures.time_ratios(workload, mib, BASELINE, UNPATCHED))
            for mib in figures.sizes
        ]
        rows.append([workload, f"{min(ratios):.2f} to {max(ratios):.2f}"])
    return markdown([f"{BASELINE.name} / {UNPATCHED.name}", "any size"], rows)


def provenance(figures: Figures, host: Host) -> str:
    repetitions = {len(figure.cpu_seconds) for figure in figures.values()}
    spread = max(figure.spread for figure in figures.values())
    return (
        f"Measured: medians of {'/'.join(map(str, sorted(repetitions)))} repetitions, "
        f"{host['processor']}, Linux {host['kernel']}, load {host['load_before']:.1f} "
        f"before; slowest and quickest repetition at most {spread:.0%} apart."
    )


def render(figures: Figures, host: Host, reached: Iterable[Goal] = ()) -> str:
    parts = [f"{COST}:"]
    for workload in figures.workloads:
        parts += [f"{workload.capitalize()}:", costs(figures, workload)]
    parts += [f"{COMPARED}:", comparisons(figures)]
    if reached := list(reached):
        parts += [emulation(figures), listing(reached)]
    parts.append(provenance(figures, host))
    return "\n\n".join(parts) + "\n"
