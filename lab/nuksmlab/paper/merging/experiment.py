# SPDX-License-Identifier: GPL-2.0-only
"""Boots User-Mode Linux for copies and images, and an emulated machine for guests."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from nuksmlab import kernels, machine, paths, uml
from nuksmlab.bench import host
from nuksmlab.bench.meter import Meter
from nuksmlab.bench.records import CpuSeconds
from nuksmlab.paper.consolidation import experiment as consolidation
from nuksmlab.paper.extent import Extent
from nuksmlab.paper.merging import capture, plan
from nuksmlab.paper.merging.records import Observed
from nuksmlab.paper.runner import Boot, Facts, made_from
from nuksmlab.paper.start import run_here
from nuksmlab.paper.where import emulated

NAME, COPIES, GUESTS = plan.NAME, plan.COPIES_PART, plan.GUESTS_PART
IMAGES = plan.IMAGES_PART
BOOT_SECONDS = 3600.0
SOURCES = (
    *("ksm.py", "bench/plan.py", "bench/scanner.py"),
    *("paper/merging/plan.py", "paper/merging/copies.py"),
)
COPIES_SOURCES = (*SOURCES, "tenant.py", "uml.py", "bench/meter.py")
IMAGES_SOURCES = (
    *(*COPIES_SOURCES, "debian_guest.py", "initramfs.py"),
    *(f"paper/merging/{name}.py" for name in ("capture", "image", "images")),
    *(f"paper/consolidation/{name}" for name in ("init.sh", "service.py")),
)
GUESTS_SOURCES = (
    *(*SOURCES, "machine.py", "nested.py", "workload.py", "virtual.py"),
    *("paper/merging/records.py", "paper/merging/guests.py"),
)


def read(raw: Path) -> list[Any]:
    """What records calls Copies, Images or Guests."""
    lines = (raw / "observed.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def add_cpu_seconds(raw: Path, cpu_seconds: CpuSeconds) -> None:
    """To what was observed where the host's CPU time is not known."""
    observed: list[Observed] = read(raw)
    for step in (step for each in observed for step in each["steps"]):
        step["cpu_seconds"] = [
            cpu_seconds(one["began"], one["ended"]) for one in step["passes"]
        ]
    text = "".join(f"{json.dumps(each)}\n" for each in observed)
    (raw / "observed.jsonl").write_text(text)


def boot_uml(kernel: Path, what: str, mib: int, raw: Path) -> None:
    command = [sys.executable, "-m", f"nuksmlab.paper.merging.{what}"]
    host.check_room(mib)
    with host.many_mappings(), Meter(kernel, raw) as meter:
        status = uml.boot(uml.Guest(kernel, mib), command, raw, BOOT_SECONDS)
    if status != 0:
        raise machine.MachineError(f"{raw.name} ended with status {status}")
    add_cpu_seconds(raw, meter.seconds)


def planned_copies(size: Extent) -> Boot:
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
    return Boot(runs, facts, partial(boot_uml, kernel, "copies", plan.COPIES_GUEST_MIB))


def boot_images(kernel: Path, guests: Path, count: int, raw: Path) -> None:
    """The images are large: nothing is left of them but what was observed."""
    archive = raw / "guest.cpio"
    images = [raw / name for name in plan.image_names(count)]
    try:
        checksum = consolidation.write_user_space(archive)
        found = capture.capture(guests, archive, plan.IMAGE_MIB, images)
        if found != [checksum] * count:
            raise machine.MachineError(f"guests found {found} in files, not {checksum}")
        boot_uml(kernel, "images", plan.IMAGES_GUEST_MIB, raw)
    finally:
        for path in (archive, *images):
            path.unlink(missing_ok=True)


def planned_images(size: Extent) -> Boot:
    kernel, guests = kernels.build("um"), kernels.find(None)
    runs = plan.images(size)
    programs = (kernel, guests)
    facts = Facts(
        made_from([runs, plan.IMAGES_GUEST_MIB], IMAGES_SOURCES, programs),
        f"make paper EXPERIMENT={NAME}",
        f"User-Mode Linux, one CPU, {plan.IMAGES_GUEST_MIB} MiB",
        kernel.name,
        programs,
    )
    return Boot(runs, facts, partial(boot_images, kernel, guests, runs[0]["guests"]))


def boot_guests(kernel: Path, raw: Path) -> None:
    module = "nuksmlab.paper.merging.guests"
    machine.boot_for_guests(
        plan.MACHINE, kernel, module, [kernel], raw, seconds=BOOT_SECONDS
    )


def planned_guests(size: Extent, kernel: Path) -> Boot:
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
    return Boot(runs, facts, partial(boot_guests, kernel))
