# SPDX-License-Identifier: GPL-2.0-only
"""The report's Tables 2 and 3 and its curves, from what was recorded."""

import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Canvas

from nuksmlab.paper.consolidation.plan import DIFFERENT, ONE, THREE, TWO
from nuksmlab.paper.consolidation.records import Recording, Result, Sample
from nuksmlab.paper.section import (
    MEASURED,
    PUBLISHED,
    Check,
    Column,
    Picture,
    Row,
    Section,
    Table,
    legend,
    number,
)

TITLE = "Consolidation: a report on KSM under KVM, repeated"
INTRODUCTION = [
    "Not of the nuKSM paper: a student's report (D. Maniyani, Kernel Same-Page Merging "
    "in KVM, University of Florida) watches KSM while one, two and three virtual "
    "machines run, with the same and with different operating systems. Published "
    "figures here are that report's.",
    "Here guests are nested in the emulated machine, each bound to a node, and run "
    "a small Debian (bash, coreutils, Python) from a file system in memory, where dd "
    "writes 8 MiB of random data again and again. Guests alike boot our kernel; of two "
    "different ones the second boots Debian's, with the same user space, where the "
    "report has two operating systems. KSM is our kernel's with its defaults.",
    "The report's guests have 1 GiB, ours 256 MiB, and ksmd is ten times as fast, "
    "because we do not watch it for an hour and a half. Pages and memory are those of "
    "the last sample; CPU is the average over all samples, by the emulated machine's "
    "own account. Emulation makes what guests do dear, and samples with KSM end soon "
    "after all is merged: CPU compares with the report's in its direction only.",
    "Each scenario is run once.",
    "The report's numbers of volatile pages cannot be those of one moment: three "
    "guests of 1 GiB have 786,432 pages, and its table says 1,348,844.",
]
ORDER = (ONE, DIFFERENT, TWO, THREE)
STATES = ("pages_shared", "pages_sharing", "pages_unshared", "pages_volatile")
PAGES_PER_MIB = 256
CPU_SAMPLES = 10  # a second from each other, for the curve


def published() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("published.toml").read_text())


def pages(recording: Recording, state: str) -> int:
    return int(recording.samples[-1]["ksm"][state])


def mib(recording: Recording) -> float:
    """Of memory used, by the whole machine."""
    return float(recording.samples[-1]["load"]["memory_used_bytes"]) / 2**20


def busy_percent(before: Sample, after: Sample) -> float:
    first, last = before["load"], after["load"]
    busy = last["cpu_busy_seconds"] - first["cpu_busy_seconds"]
    return float(100 * busy / (last["cpu_total_seconds"] - first["cpu_total_seconds"]))


def cpu_percent(recording: Recording) -> float:
    return busy_percent(recording.samples[0], recording.samples[-1])


def ksmd_percent(recording: Recording) -> float:
    first, last = recording.samples[0], recording.samples[-1]
    used = last["ksmd_cpu_seconds"] - first["ksmd_cpu_seconds"]
    return float(100 * used / (last["unix_time"] - first["unix_time"]))


def guests_percent(recording: Recording) -> float:
    phase = recording.phase
    return 100 * phase["guests_cpu_seconds"] / phase["seconds"]


def table_2(results: Sequence[Result]) -> Table:
    columns = [
        Column("guests"),
        Column("the report's"),
        Column("pages shared", MEASURED),
        Column("pages shared", PUBLISHED),
        Column("further places that share them", MEASURED),
        Column("MiB saved", MEASURED),
        Column("pages unshared", MEASURED),
        Column("pages volatile", MEASURED),
        Column("pages volatile", PUBLISHED),
    ]
    rows = []
    for result in results:
        known = published()[result.name]
        shared, sharing, unshared, volatile = (
            pages(result.merging, state) for state in STATES
        )
        cells = [
            *(result.name, known["system"]),
            *(str(shared), str(known["pages_shared"]), str(sharing)),
            *(number(sharing / PAGES_PER_MIB, 1), str(unshared)),
            *(str(volatile), str(known["pages_volatile"])),
        ]
        rows.append(Row(cells, [result.merging.raw]))
    title = "The report's Table 2: pages of KSM in each scenario"
    return Table("consolidation-table-2", title, columns, rows)


def less_percent(without: float | None, merging: float | None) -> float | None:
    if without is None or merging is None:
        return None
    return 100 * (1 - merging / without)


def table_3(results: Sequence[Result]) -> Table:
    columns = [
        Column("guests"),
        Column("CPU, %: without KSM", MEASURED),
        Column("with", MEASURED),
        Column("without", PUBLISHED),
        Column("with", PUBLISHED),
        Column("of one CPU, %: ksmd", MEASURED),
        Column("guests without KSM", MEASURED),
        Column("guests with", MEASURED),
        Column("memory, MiB: without KSM", MEASURED),
        Column("with", MEASURED),
        Column("less, %", MEASURED),
        Column("memory, MB: without", PUBLISHED),
        Column("with", PUBLISHED),
        Column("less, %", PUBLISHED),
    ]
    rows = []
    for result in results:
        known = published()[result.name]
        without, merging = result.without, result.merging
        memory = known.get("memory_without"), known.get("memory_merging")
        cells = [
            result.name,
            *(number(cpu_percent(one), 1) for one in (without, merging)),
            *(number(known.get(f"cpu_{one}"), 1) for one in ("without", "merging")),
            number(ksmd_percent(merging), 1),
            *(number(guests_percent(one), 1) for one in (without, merging)),
            *(number(mib(one), 0) for one in (without, merging)),
            number(less_percent(mib(without), mib(merging)), 1),
            *(number(one, 0) for one in memory),
            number(less_percent(*memory), 1),
        ]
        rows.append(Row(cells, [without.raw, merging.raw]))
    title = "The report's Table 3: CPU and memory with and without KSM"
    return Table("consolidation-table-3", title, columns, rows)


def seconds(result: Result, recording: Recording) -> list[float]:
    """Since merging began."""
    start = result.merging.samples[0]["unix_time"]
    return [sample["unix_time"] - start for sample in recording.samples]


def memory_curve(recording: Recording) -> list[float]:
    return [sample["load"]["memory_used_bytes"] / 2**20 for sample in recording.samples]


def shared_curve(recording: Recording) -> list[float]:
    return [sample["ksm"]["pages_shared"] for sample in recording.samples]


def cpu_curve(recording: Recording) -> list[float]:
    """In a second a guest writes its data or does not: the load shows over several."""
    samples = recording.samples
    rates = [
        busy_percent(samples[max(0, last - CPU_SAMPLES)], samples[last])
        for last in range(1, len(samples))
    ]
    return [rates[0], *rates]


CURVES: dict[str, Callable[[Recording], list[float]]] = {
    f"CPU busy, %, of the last {CPU_SAMPLES} s": cpu_curve,
    "memory used, MiB": memory_curve,
    "pages shared": shared_curve,
}


def draw_curves(results: Sequence[Result], canvas: Canvas) -> None:
    several = canvas.subplots(1, len(CURVES))
    for axes, (label, curve) in zip(several, CURVES.items(), strict=True):
        for number_of, result in enumerate(results):
            for recording in (result.without, result.merging):
                axes.plot(
                    seconds(result, recording),
                    curve(recording),
                    color=f"C{number_of}",
                    label=result.name if recording is result.merging else None,
                )
        axes.axvline(0, color="gray", linestyle=":")
        axes.set_ylabel(label)
        axes.set_xlabel("seconds since ksmd started")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    legend(canvas, several[0])


def draw_states(results: Sequence[Result], canvas: Canvas) -> None:
    several = canvas.subplots(1, len(results), sharey=True, squeeze=False)[0]
    for axes, result in zip(several, results, strict=True):
        recording = result.merging
        for state in STATES:
            axes.plot(
                seconds(result, recording),
                [sample["ksm"][state] for sample in recording.samples],
                label=state.removeprefix("pages_"),
            )
        axes.set_title(result.name)
        axes.set_xlabel("seconds")
        axes.grid(alpha=0.3)
    several[0].set_ylabel("pages")
    legend(canvas, several[0])


def pictures(results: Sequence[Result]) -> list[Picture]:
    return [
        Picture(
            "consolidation-curves",
            "As the report's Figures 3 and 4: CPU, memory and shared pages, before "
            "and after ksmd starts (measured)",
            partial(draw_curves, results),
        ),
        Picture(
            "consolidation-states",
            "Pages of KSM by their state (measured)",
            partial(draw_states, results),
        ),
    ]


def checks(results: Sequence[Result]) -> Iterator[Check]:
    wrong = [
        f"{result.name}, guest {guest}"
        for result in results
        for guest, checksum in enumerate(result.checksums)
        if checksum != result.expected
    ]
    yield Check(
        "guests that read what is in their files, when merged",
        "all",
        f"not: {'; '.join(wrong)}" if wrong else "all",
        not wrong,
    )
    # What one guest saves is no more than what its load may take meanwhile.
    for result in (one for one in results if one.name != ONE["name"]):
        without, merging = mib(result.without), mib(result.merging)
        yield Check(
            f"{result.name}: MiB of memory used with KSM",
            f"less than {without:.0f}",
            f"{merging:.0f}",
            merging < without,
        )
    found = {result.name: result.merging for result in results}
    for state, fewer, more in (
        ("pages_sharing", ONE, TWO),
        ("pages_sharing", TWO, THREE),
        ("pages_shared", DIFFERENT, TWO),
    ):
        if fewer["name"] in found and more["name"] in found:
            least, most = (pages(found[one["name"]], state) for one in (fewer, more))
            yield Check(
                f"{state} of {more['name']} guests, against {fewer['name']}",
                f"more than {least}",
                str(most),
                most > least,
            )


def section(results: Sequence[Result]) -> Section:
    order = [scenario["name"] for scenario in ORDER]
    ordered = sorted(results, key=lambda result: order.index(result.name))
    return Section(
        TITLE,
        INTRODUCTION,
        [table_2(ordered), table_3(ordered)],
        pictures(ordered),
        list(checks(ordered)),
    )
