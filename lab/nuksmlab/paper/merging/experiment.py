# SPDX-License-Identifier: GPL-2.0-only
"""Boots User-Mode Linux for the copies, and an emulated machine for the guests."""

import json
import sys
from pathlib import Path
from typing import Any

from nuksmlab import kernels, machine, paths, uml
from nuksmlab.bench import host
from nuksmlab.bench.meter import Meter
from nuksmlab.bench.records import CpuSeconds
from nuksmlab.paper.extent import Extent
from nuksmlab.paper.merging import plan
from nuksmlab.paper.merging.records import Copies
from nuksmlab.paper.runner import Facts, made_from, run_once
from nuksmlab.paper.start import run_here
from nuksmlab.paper.where import emulated

NAME, COPIES, GUESTS = plan.NAME, plan.COPIES_PART, plan.GUESTS_PART
BOOT_SECONDS = 3600.0
SOURCES = (
    *("ksm.py", "bench/plan.py", "bench/scanner.py"),
    *("paper/merging/plan.py", "paper/merging/copies.py"),
)
COPIES_SOURCES = (*SOURCES, "tenant.py", "uml.py", "bench/meter.py")
GUESTS_SOURCES = (
    *(*SOURCES, "machine.py", "nested.py", "workload.py", "virtual.py"),
    *("paper/merging/records.py", "paper/merging/guests.py"),
)


def read(raw: Path) -> list[Any]:
    """What records calls Copies, or Guests."""
    lines = (raw / "observed.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def add_cpu_seconds(raw: Path, cpu_seconds: CpuSeconds) -> None:
    """To what was observed where the host's CPU time is not known."""
    observed: list[Copies] = read(raw)
    for step in (step for each in observed for step in each["steps"]):
        step["cpu_seconds"] = [
            cpu_seconds(one["began"], one["ended"]) for one in step["passes"]
        ]
    text = "".join(f"{json.dumps(each)}\n" for each in observed)
    (raw / "observed.jsonl").write_text(text)


def boot_copies(kernel: Path, raw: Path) -> None:
    command = [sys.executable, "-m", "nuksmlab.paper.merging.copies"]
    host.check_room(plan.COPIES_GUEST_MIB)
    with host.many_mappings(), Meter(kernel, raw) as meter:
        status = uml.boot(
            uml.Guest(kernel, plan.COPIES_GUEST_MIB), command, raw, BOOT_SECONDS
        )
    if status != 0:
        raise machine.MachineError(f"{COPIES} ended with status {status}")
    add_cpu_seconds(raw, meter.seconds)


def run_copies(size: Extent, raw: Path) -> None:
    kernel = kernels.build("um")
    runs = plan.copies(size)
    programs = (paths.TENANT, kernel)
    facts = Facts(
        made_from([runs, plan.COPIES_GUEST_MIB], COPIES_SOURCES, programs),
        f"make paper EXPERIMENT={NAME}",
        f"User-Mode Linux, one CPU, {plan.COPIES_GUEST_MIB} MiB",
        kernel.name,
        programs,
    )
    run_once(raw, runs, facts, lambda: boot_copies(kernel, raw))


def boot_guests(kernel: Path, raw: Path) -> None:
    module = "nuksmlab.paper.merging.guests"
    machine.boot_for_guests(
        plan.MACHINE, kernel, module, [kernel], raw, seconds=BOOT_SECONDS
    )


def run_guests(size: Extent, kernel: Path, raw: Path) -> None:
    runs = plan.guests(size)
    programs = (paths.WORKLOAD, paths.BOUND, kernel)
    facts = Facts(
        made_from([runs, vars(plan.MACHINE)], GUESTS_SOURCES, programs),
        f"make paper EXPERIMENT={NAME}",
        emulated(plan.MACHINE),
        kernel.name,
        programs,
        lambda: {plan.WORKLOAD: run_here(plan.WORKLOAD, size.kib, plan.OPERATIONS)},
    )
    run_once(raw, runs, facts, lambda: boot_guests(kernel, raw))
