# SPDX-License-Identifier: GPL-2.0-only
"""Makes the guests' file system, boots the machine, and keeps what was observed."""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import cast

from nuksmlab import debian_guest, initramfs, kernels, machine, paths
from nuksmlab.machine import Machine
from nuksmlab.paper.consolidation.plan import NODE_MIB, STOCK
from nuksmlab.paper.consolidation.records import (
    Observed,
    Phase,
    Plan,
    Recording,
    Result,
)
from nuksmlab.paper.runner import Boot, Facts, made_from
from nuksmlab.paper.where import emulated

NAME = "consolidation"
BOOT_SECONDS = 3600.0
HERE = Path(__file__).parent
SOURCES = (
    *("debian_guest.py", "initramfs.py", "ksm.py", "machine.py", "nested.py"),
    "virtual.py",
    *(f"paper/{NAME}/{name}" for name in ("guest.py", "init.sh", "service.py")),
)
PROGRAMS = (paths.BOUND, paths.NUKSM_RELEASE)
USER_SPACE = "the guests' files"
MACHINE = Machine(2, NODE_MIB)


def write_user_space(path: Path) -> int:
    """Returns the checksum that guests are to find."""
    files = debian_guest.files(
        debian_guest.closure(debian_guest.installed(), debian_guest.ROOTS)
    )
    init = (HERE / "init.sh").read_bytes()
    service = (HERE / "service.py").read_bytes()
    initramfs.write(
        path,
        *debian_guest.entries(files),
        initramfs.entry("init", initramfs.PROGRAM, init),
        initramfs.entry("service.py", initramfs.FILE, service),
    )
    return debian_guest.checksum(files)


def boot(images: list[Path], kept: Path) -> None:
    """Of the guests' file system and of one or two kernels."""
    module = "nuksmlab.paper.consolidation.guest"
    machine.boot_for_guests(
        MACHINE, images[1], module, images, kept, seconds=BOOT_SECONDS
    )


def has_stock(plan: Plan) -> bool:
    return any(STOCK in scenario["kernels"] for scenario in plan["scenarios"])


def planned(plan: Plan, raw: Path, kernel: Path) -> Boot:
    """The guests' files are beside the folders of all boots."""
    raw.mkdir(parents=True, exist_ok=True)
    archive = raw / f"{NAME}-guest.cpio"
    new = archive.with_suffix(".new")
    checksum = write_user_space(new)
    new.replace(archive)  # a guest may be booted from the old one
    images = [archive, kernel, *([kernels.find(None)] if has_stock(plan) else [])]
    programs = (*PROGRAMS, *images)
    facts = Facts(
        made_from(plan, SOURCES, programs),
        f"make paper EXPERIMENT={NAME}",
        emulated(MACHINE),
        kernel.name,
        programs,
        lambda: {USER_SPACE: str(checksum)},
    )
    return Boot(plan, facts, partial(boot, images))


def read_recording(kept: Path, phase: Phase) -> Recording:
    """The first line says what the recording is of."""
    _, *lines = (kept / phase["recording"]).read_text().splitlines()
    raw = f"raw/{kept.name}/{phase['recording']}#2-{len(lines) + 1}"
    return Recording(phase, [json.loads(line) for line in lines], raw)


def read(kept: Path, expected: Mapping[str, str]) -> Iterator[Result]:
    for line in (kept / "observed.jsonl").read_text().splitlines():
        observed = cast(Observed, json.loads(line))
        yield Result(
            observed["scenario"]["name"],
            read_recording(kept, observed["without"]),
            read_recording(kept, observed["merging"]),
            observed["checksums"],
            int(expected[USER_SPACE]),
        )
