# SPDX-License-Identifier: GPL-2.0-only
"""Boots the machine whose emulator counts what kernels do, and keeps what it saw."""

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import cast

from nuksmlab import counter, machine, paths
from nuksmlab.paper.extent import Extent
from nuksmlab.paper.runner import Boot, Facts, made_from
from nuksmlab.paper.scanning import plan
from nuksmlab.paper.scanning.records import Observed, Result, Work
from nuksmlab.paper.where import BOOT_SECONDS, emulated

NAME = "scanning"
SOURCES = (
    *("counter.py", "ksm.py", "machine.py", "numa.py", "tenant.py"),
    *(f"paper/{NAME}/{name}" for name in ("guest.py", "plan.py")),
)


def boot(image: Path, size: Extent, kept: Path) -> None:
    status = machine.boot(
        plan.MACHINE,
        image,
        [sys.executable, "-m", f"nuksmlab.paper.{NAME}.guest"],
        kept,
        kvm=False,
        seconds=BOOT_SECONDS,
        qemu_options=counter.qemu_options(
            plan.MACHINE, size.caches, kept, counter.KERNELS
        ),
    )
    if status != 0:
        raise machine.MachineError(f"{NAME} ended with status {status}")


def planned(size: Extent, image: Path) -> Boot:
    runs = plan.runs(size)
    programs = (paths.TENANT, paths.BOUND, paths.COUNTER, image)
    caches = vars(size.caches)
    facts = Facts(
        made_from([runs, caches], SOURCES, programs),
        f"make paper EXPERIMENT={NAME}",
        emulated(plan.MACHINE),
        image.name,
        programs,
        caches=caches,
    )
    return Boot(runs, facts, partial(boot, image, size))


def read(kept: Path) -> Iterator[Result]:
    counts = counter.read(kept / counter.COUNTS)
    lines = (kept / "observed.jsonl").read_text().splitlines()
    pairs = zip(counts[::2], counts[1::2], strict=True)
    for number, (line, (merging, resting)) in enumerate(
        zip(lines, pairs, strict=True), 1
    ):
        observed = cast(Observed, json.loads(line))
        yield Result(
            observed,
            Work(observed["merging"], merging),
            Work(observed["resting"], resting),
            f"raw/{kept.name}/observed.jsonl#{number}",
        )
