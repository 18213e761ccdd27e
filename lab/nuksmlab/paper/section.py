# SPDX-License-Identifier: GPL-2.0-only
"""What an experiment gives to the report: tables, pictures, checks, remarks."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from nuksmlab.counter import Counts
from nuksmlab.paper.trial import Result

MEASURED, MODELLED, PUBLISHED = "measured", "modelled", "published"
UNKNOWN = "-"

# Results by workload and configuration, each in the order of repetition.
Grouped = dict[tuple[str, str], list[Result]]


@dataclass(frozen=True)
class Column:
    """All its cells are of one kind; empty for what a row is called by."""

    name: str
    kind: str = ""


@dataclass(frozen=True)
class Row:
    cells: list[str]
    raw: list[str]  # where it was observed


@dataclass(frozen=True)
class Table:
    """One figure or table of the paper; `name` is that of its file."""

    name: str
    title: str
    columns: list[Column]
    rows: list[Row]
    note: str = ""
    of_model: bool = False  # says nothing where times are measured
    bare_heads: bool = False  # in the CSV, whose columns have names of their own


@dataclass(frozen=True)
class Picture:
    name: str
    caption: str
    draw: Callable[[Canvas], None]
    of_model: bool = False


@dataclass(frozen=True)
class Check:
    what: str
    goal: str
    found: str
    holds: bool
    by_clock: bool = False  # depends on what else the host does
    of_measured_times: bool = False  # modelled ones could not but hold


@dataclass(frozen=True)
class Claim:
    """What the paper says, and what came out: for readers in a hurry."""

    what: str
    published: str
    found: str
    kind: str  # of what was found
    remark: str


@dataclass(frozen=True)
class Section:
    title: str
    paragraphs: list[str]
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)


def all_measured(section: Section) -> Section:
    """On real hardware, run times are what the clock said."""
    tables = [
        replace(
            table,
            columns=[
                replace(column, kind=MEASURED) if column.kind == MODELLED else column
                for column in table.columns
            ],
        )
        for table in section.tables
        if not table.of_model
    ]
    pictures = [
        replace(picture, caption=picture.caption.replace(MODELLED, MEASURED))
        for picture in section.pictures
        if not picture.of_model
    ]
    claims = [
        replace(claim, kind=MEASURED) if claim.kind == MODELLED else claim
        for claim in section.claims
    ]
    return replace(section, tables=tables, pictures=pictures, claims=claims)


def of_model(section: Section) -> Section:
    """Without the goals that modelled times could not but reach."""
    checks = [check for check in section.checks if not check.of_measured_times]
    return replace(section, checks=checks)


def grouped(results: Iterable[Result]) -> Grouped:
    groups: Grouped = {}
    for result in results:
        trial = result["trial"]
        key = (trial["workload"], trial["configuration"])
        groups.setdefault(key, []).append(result)
    return groups


def workloads(groups: Grouped) -> list[str]:
    return list(dict.fromkeys(workload for workload, _ in groups))


def raw(*results: list[Result]) -> list[str]:
    """Each once, in this order."""
    named = (result["raw"] for several in results for result in several)
    return list(dict.fromkeys(named))


def how_often(runs: Iterable[Mapping[str, object]]) -> str:
    """What was planned of them, by the repetitions that they are of."""
    count = len({run["repetition"] for run in runs})
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def number(value: float | None, digits: int = 2) -> str:
    return UNKNOWN if value is None else f"{value:z.{digits}f}"


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The median of all repetitions, with the least and the most."""
    middle, least, most = (
        number(value, digits)
        for value in (statistics.median(values), min(values), max(values))
    )
    return middle if least == most else f"{middle} ({least} to {most})"


def reach(values: Iterable[float], digits: int = 0) -> str:
    """From the least to the most."""
    several = list(values)
    least, most = (number(value, digits) for value in (min(several), max(several)))
    return least if least == most else f"{least} to {most}"


def worst(found: float, several: Sequence[float], digits: int) -> str:
    of = f" (worst of {len(several)})" if len(several) > 1 else ""
    return f"{number(found, digits)}{of}"


def at_least(what: str, values: Sequence[float], goal: float, digits: int = 3) -> Check:
    """Each of the values, which are those of the repetitions."""
    return Check(
        what,
        f"at least {goal:.{digits}f}",
        worst(min(values), values, digits),
        min(values) >= goal,
    )


def at_most(what: str, values: Sequence[float], goal: float, digits: int = 2) -> Check:
    """Each of the values, which are those of the repetitions."""
    return Check(
        what,
        f"at most {goal:.{digits}f}",
        worst(max(values), values, digits),
        max(values) <= goal,
    )


def all_on_nodes(several: Iterable[Counts]) -> Check:
    """An access to no node's memory is taken for a local one."""
    shares = [
        100 * counts["elsewhere"] / max(counts["local"] + counts["remote"], 1)
        for counts in several
    ]
    return at_most("DRAM accesses to no node's memory, %", shares, 0.1)


def counted(results: Sequence[Result]) -> list[Check]:
    """By all instances, where accesses are counted."""
    counts = [
        instance["counts"] for result in results for instance in result["instances"]
    ]
    return [all_on_nodes(filter(None, counts))] if any(counts) else []


def answers(results: Iterable[Result]) -> Check:
    """Whether each instance found what an instance finds without any merging."""
    wrong = [
        f"{result['raw']}, instance {number}"
        for result in results
        for number, instance in enumerate(result["instances"])
        if instance["answer"]["checksum"] != result["expected"]
    ]
    return Check(
        "answers that are the same as those of a run on the host, without merging",
        "all",
        f"wrong: {'; '.join(wrong)}" if wrong else "all",
        not wrong,
    )


def writes(results: Iterable[Result]) -> Check:
    """To pages that are merged: no other instance may see them. Databases make none."""
    tried = [result for result in results if result["spoilt"] is not None]
    seen = [result["raw"] for result in tried if result["spoilt"]]
    return Check(
        "writes to merged pages that others saw, or that were lost",
        "none, and some are tried",
        f"seen: {'; '.join(seen)}" if seen else f"none, {len(tried)} times tried",
        bool(tried) and not seen,
    )


def sound(results: Sequence[Result]) -> list[Check]:
    """What has to hold wherever pages are."""
    return [answers(results), writes(results), *counted(results)]


def bar(
    axes: Axes, position: float, values: Sequence[float], width: float, **how: Any
) -> None:
    """The median of all repetitions, and a line from the least to the most."""
    middle = statistics.median(values)
    ends = [[middle - min(values)], [max(values) - middle]]
    axes.bar(position, middle, width, yerr=ends, capsize=2, **how)


def legend(canvas: Canvas, axes: Axes) -> None:
    """Of one of several axes that show the same, above all of them."""
    handles, labels = axes.get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside upper right", ncols=len(labels))


def write(path: Path, picture: Picture) -> None:
    canvas = Canvas(figsize=(10, 4.2), layout="constrained")
    picture.draw(canvas)
    canvas.savefig(path / f"{picture.name}.png", dpi=110)
