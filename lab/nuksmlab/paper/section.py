# SPDX-License-Identifier: GPL-2.0-only
"""What an experiment gives to the report: tables, pictures, checks, remarks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

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


@dataclass(frozen=True)
class Picture:
    name: str
    caption: str
    draw: Callable[[Canvas], None]


@dataclass(frozen=True)
class Check:
    what: str
    goal: str
    found: str
    holds: bool
    by_clock: bool = False  # depends on what else the host does


@dataclass(frozen=True)
class Section:
    title: str
    paragraphs: list[str]
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)


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
    ]
    pictures = [
        replace(picture, caption=picture.caption.replace(MODELLED, MEASURED))
        for picture in section.pictures
    ]
    return replace(section, tables=tables, pictures=pictures)


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


def number(value: float | None, digits: int = 2) -> str:
    return UNKNOWN if value is None else f"{value:z.{digits}f}"


def at_least(what: str, found: float, goal: float, digits: int = 3) -> Check:
    return Check(
        what, f"at least {goal:.{digits}f}", f"{found:.{digits}f}", found >= goal
    )


def at_most(what: str, found: float, goal: float, digits: int = 2) -> Check:
    return Check(
        what, f"at most {goal:.{digits}f}", f"{found:.{digits}f}", found <= goal
    )


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


def legend(canvas: Canvas, axes: Axes) -> None:
    """Of one of several axes that show the same, above all of them."""
    handles, labels = axes.get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside upper right", ncols=len(labels))


def write(path: Path, picture: Picture) -> None:
    canvas = Canvas(figsize=(10, 4.2), layout="constrained")
    picture.draw(canvas)
    canvas.savefig(path / f"{picture.name}.png", dpi=110)
