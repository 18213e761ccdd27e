# SPDX-License-Identifier: GPL-2.0-only
"""Boots User-Mode Linux for the copies, and an emulated machine for the guests."""

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nuksmlab import accelerator, kernels, machine, paths, uml
from nuksmlab.bench import host
from nuksmlab.bench.meter import Meter
from nuksmlab.bench.records import CpuSeconds
from nuksmlab.paper.extent import Extent
from nuksmlab.paper.merging import plan
from nuksmlab.paper.merging.records import Copies, Run
from nuksmlab.paper.runner import Facts, file_hash, run_once
from nuksmlab.paper.start import run_here

NAME, COPIES, GUESTS = plan.NAME, plan.COPIES_PART, plan.GUESTS_PART
BOOT_SECONDS = 3600.0
SOURCES = (
    *("ksm.py", "bench/plan.py", "bench/scanner.py"),
    *("paper/merging/plan.py", "paper/merging/copies.py"),
)
COPIES_SOURCES = (*SOURCES, "tenant.py", "uml.py", "bench/meter.py")
GUESTS_SOURCES = (
    *(*SOURCES, "machine.py", "workload.py", "virtual.py"),
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


def inputs(
    runs: Sequence[Run], mib: int, programs: Sequence[Path], sources: Sequence[str]
) -> str:
    """Changes with whatever could change the result."""
    lab = paths.REPOSITORY / "lab" / "nuksmlab"
    files = [*(lab / name for name in sources), *programs]
    known = [runs, mib, *map(file_hash, files)]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]


def boot_copies(kernel: Path, raw: Path) -> None:
    command = [sys.executable, "-m", "nuksmlab.paper.merging.copies"]
    host.check_room(plan.COPIES_GUEST_MIB)
    with host.many_mappings(), Meter(kernel) as meter:
        status = uml.boot(kernel, plan.COPIES_GUEST_MIB, command, raw, BOOT_SECONDS)
    if status != 0:
        raise machine.MachineError(f"{COPIES} ended with status {status}")
    add_cpu_seconds(raw, meter.seconds)


def run_copies(size: Extent, raw: Path) -> None:
    kernel = kernels.build("um")
    runs = plan.copies(size)
    programs = (paths.TENANT, kernel)
    facts: Facts = {
        "inputs": inputs(runs, plan.COPIES_GUEST_MIB, programs, COPIES_SOURCES),
        "command": f"make paper EXPERIMENT={NAME}",
        "machine": f"User-Mode Linux, one CPU, {plan.COPIES_GUEST_MIB} MiB",
        "kernel": kernel.name,
        "programs": programs,
        "expected": {},
    }
    run_once(raw, runs, facts, lambda: boot_copies(kernel, raw))


def boot_guests(kernel: Path, raw: Path) -> None:
    command = [sys.executable, "-m", "nuksmlab.paper.merging.guests", str(kernel)]
    status = machine.boot(
        plan.MACHINE,
        kernel,
        command,
        raw,
        kvm=False,
        emulation=machine.NESTING,
        seconds=BOOT_SECONDS,
    )
    if status != 0:
        raise machine.MachineError(f"{GUESTS} ended with status {status}")


def run_guests(size: Extent, kernel: Path, raw: Path) -> None:
    runs, nodes, node_mib = plan.guests(size), plan.MACHINE.nodes, plan.MACHINE.node_mib
    programs = (paths.WORKLOAD, paths.BOUND, kernel)
    facts: Facts = {
        "inputs": inputs(runs, node_mib, programs, GUESTS_SOURCES),
        "command": f"make paper EXPERIMENT={NAME}",
        "machine": f"{nodes} nodes of one CPU and {node_mib} MiB, emulated by QEMU "
        f"{accelerator.qemu_version()}",
        "kernel": kernel.name,
        "programs": programs,
        "expected": {plan.WORKLOAD: run_here(plan.WORKLOAD, size.kib, plan.OPERATIONS)},
    }
    run_once(raw, runs, facts, lambda: boot_guests(kernel, raw))
