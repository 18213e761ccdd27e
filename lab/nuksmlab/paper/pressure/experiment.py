# SPDX-License-Identifier: GPL-2.0-only
"""Boots User-Mode Linux for the runs, and keeps what they observed."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import cast

from nuksmlab import kernels, machine, paths, uml
from nuksmlab.bench import host
from nuksmlab.paper.extent import Extent
from nuksmlab.paper.pressure import plan
from nuksmlab.paper.pressure.records import Observed
from nuksmlab.paper.runner import Boot, Facts, made_from

NAME = "pressure"
BOOT_SECONDS = 3600.0
SOURCES = (
    "ksm.py",
    "tenant.py",
    "uml.py",
    "paper/pressure/guest.py",
    "paper/pressure/plan.py",
)


def boot(kernel: Path, kept: Path) -> None:
    host.check_room(plan.GUEST_MIB)
    with host.many_mappings():
        status = uml.boot(
            uml.Guest(kernel, plan.GUEST_MIB),
            [sys.executable, "-m", "nuksmlab.paper.pressure.guest"],
            kept,
            BOOT_SECONDS,
        )
    if status != 0:
        raise machine.MachineError(f"{NAME} ended with status {status}")


def planned(size: Extent) -> Boot:
    kernel = kernels.build("um")
    runs = plan.runs(size.other_repetitions, size.repetitions)
    programs = (paths.TENANT, kernel)
    facts = Facts(
        made_from([runs, plan.GUEST_MIB], SOURCES, programs),
        f"make paper EXPERIMENT={NAME}",
        f"User-Mode Linux, one CPU, {plan.GUEST_MIB} MiB",
        kernel.name,
        programs,
    )
    return Boot(runs, facts, partial(boot, kernel))


def read(kept: Path) -> list[Observed]:
    lines = (kept / "observed.jsonl").read_text().splitlines()
    return [cast(Observed, json.loads(line)) for line in lines]
