# SPDX-License-Identifier: GPL-2.0-only
"""What modelled differences would be on other hardware, from the same counts.

Nothing is run again: each variant changes one assumption of the model.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from matplotlib.figure import Figure as Canvas

from nuksmlab.paper.model import Hardware
from nuksmlab.paper.section import (
    MODELLED,
    PUBLISHED,
    Column,
    Picture,
    Row,
    Table,
    number,
)

LATENCY = 0.2
WITHIN = "within"
NOTE = (
    "Differences between instances are larger here than in the paper. From the same "
    "counts: with two or four misses in flight at a time, on average; remote memory a "
    "fifth nearer or farther; for each miss a page-table walk that misses, too, in "
    "local memory; and a last-level cache that half as much, or twice as much, misses. "
    "Each changes one assumption; nothing was run again."
)


def variants(hardware: Hardware) -> dict[str, Hardware]:
    """By what is different; the first one is as assumed everywhere else."""
    return {
        "as modelled": hardware,
        "2 misses at once": replace(hardware, overlap=2 * hardware.overlap),
        "4 misses at once": replace(hardware, overlap=4 * hardware.overlap),
        "remote 20 % nearer": replace(
            hardware, remote_ns=(1 - LATENCY) * hardware.remote_ns
        ),
        "remote 20 % farther": replace(
            hardware, remote_ns=(1 + LATENCY) * hardware.remote_ns
        ),
        "a walk per miss": replace(hardware, walks=hardware.walks + 1),
        "half the misses": replace(hardware, misses=hardware.misses / 2),
        "twice the misses": replace(hardware, misses=2 * hardware.misses),
    }


@dataclass(frozen=True)
class Quantity:
    """A difference in percent, of one workload."""

    name: str
    of: Callable[[Hardware], Sequence[float]]  # of each repetition
    published: float | None
    raw: list[str]
    or_more: bool = False  # the published one is exceeded, the text says

    def medians(self, hardware: Hardware) -> dict[str, float]:
        return {
            name: statistics.median(self.of(variant))
            for name, variant in variants(hardware).items()
        }


def position(
    found: Mapping[str, float], published: float | None, *, or_more: bool = False
) -> str:
    """Of what was published, in the band of what was found."""
    if published is None:
        return "not in the text"
    least, most = min(found.values()), max(found.values())
    if or_more and published < most:
        return WITHIN
    if published < least:
        return f"below, by {least - published:.0f}"
    return f"above, by {published - most:.0f}" if published > most else WITHIN


def explained(quantities: Sequence[Quantity], hardware: Hardware) -> str:
    """Of how many of them other hardware explains what was published."""
    known = [one for one in quantities if one.published is not None]
    outside = [
        one.name
        for one in known
        if position(one.medians(hardware), one.published, or_more=one.or_more) != WITHIN
    ]
    *several, last = outside or [""]
    rest = f", not {' and '.join(filter(None, (', '.join(several), last)))}"
    return (
        f"explains {len(known) - len(outside)} of {len(known)} (see the table of other "
        f"hardware){rest if outside else ''}"
    )


def table(
    name: str, title: str, several: Sequence[Quantity], hardware: Hardware
) -> Table:
    columns = [
        Column("workload"),
        *(Column(variant, MODELLED) for variant in variants(hardware)),
        Column("published", PUBLISHED),
        Column("the published one lies in this band", MODELLED),
    ]
    rows = []
    for quantity in several:
        found = quantity.medians(hardware)
        cells = [
            quantity.name,
            *(number(value, 1) for value in found.values()),
            ("over " if quantity.or_more and quantity.published else "")
            + number(quantity.published, 0),
            position(found, quantity.published, or_more=quantity.or_more),
        ]
        rows.append(Row(cells, quantity.raw))
    return Table(name, title, columns, rows, NOTE, of_model=True)


def picture(
    name: str,
    title: str,
    label: str,
    several: Sequence[Quantity],
    hardware: Hardware,
) -> Picture:
    caption = f"{title}, on other hardware (modelled)"
    drawn = partial(draw, label, several, hardware)
    return Picture(name, caption, drawn, of_model=True)


def draw(
    label: str, several: Sequence[Quantity], hardware: Hardware, canvas: Canvas
) -> None:
    """A band for each workload, a dot where it is modelled, a cross as published."""
    axes = canvas.subplots()
    for place, quantity in enumerate(several):
        found = quantity.medians(hardware)
        least, most = min(found.values()), max(found.values())
        first = place == 0
        axes.bar(
            place,
            most - least,
            0.5,
            bottom=least,
            color="tab:blue",
            alpha=0.3,
            label="all variants" if first else None,
        )
        modelled = next(iter(found.values()))
        axes.plot(
            place, modelled, "o", color="tab:blue", label="modelled" if first else None
        )
        if quantity.published is not None:
            axes.plot(
                place,
                quantity.published,
                "x",
                color="tab:red",
                label="published" if first else None,
            )
    axes.set_xticks(range(len(several)), [quantity.name for quantity in several])
    axes.set_ylabel(label)
    axes.grid(axis="y", alpha=0.3)
    axes.legend()
