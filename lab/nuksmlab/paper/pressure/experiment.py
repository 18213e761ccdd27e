# SPDX-License-Identifier: GPL-2.0-only
"""Boots User-Mode Linux for the runs, and keeps what they observed."""

import hashlib
import json
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from nuksmlab import kernels, machine, paths, uml
from nuksmlab.bench import host
from nuksmlab.paper.extent import Extent
from nuksmlab.paper.pressure import plan
from nuksmlab.paper.pressure.records import Observed, Run
from nuksmlab.paper.runner import Complete, completed, file_hash

NAME = "pressure"
BOOT_SECONDS = 3600.0
SOURCES = ("ksm.py", "tenant.py", "uml.py", "paper/pressure/guest.py")


def inputs(runs: Sequence[Run], kernel: Path) -> str:
    lab = paths.REPOSITORY / "lab" / "nuksmlab"
    files = [*(lab / name for name in SOURCES), paths.TENANT, kernel]
    known = [runs, plan.GUEST_MIB, [file_hash(path) for path in files]]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]


def boot(runs: Sequence[Run], kernel: Path, kept: Path) -> None:
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "complete.json").unlink(missing_ok=True)
    (kept / "plan.json").write_text(json.dumps(runs, indent=1) + "\n")
    host.check_room(plan.GUEST_MIB)
    with host.many_mappings():
        status = uml.boot(
            kernel,
            plan.GUEST_MIB,
            [sys.executable, "-m", "nuksmlab.paper.pressure.guest"],
            kept,
            BOOT_SECONDS,
        )
    if status != 0:
        raise machine.MachineError(f"{NAME} ended with status {status}")


def run(size: Extent, kept: Path) -> None:
    """Unless it was run before, from the same inputs."""
    kernel = kernels.build("um")
    runs = plan.runs(size.repetitions)
    made_from = inputs(runs, kernel)
    known = completed(kept)
    if known and known["inputs"] == made_from:
        print(f"{NAME}: kept from {known['finished']}", flush=True)
        return
    print(f"{NAME}: {len(runs)} runs", flush=True)
    began = time.monotonic()
    boot(runs, kernel, kept)
    done: Complete = {
        "inputs": made_from,
        "command": f"make paper EXPERIMENT={NAME}",
        "machine": f"User-Mode Linux, one CPU, {plan.GUEST_MIB} MiB",
        "caches": {},
        "kernel": kernel.name,
        "programs": {path.name: file_hash(path) for path in (paths.TENANT, kernel)},
        "expected": {},
        "host": f"Linux {platform.release()}, {platform.machine()}",
        "seconds": time.monotonic() - began,
        "finished": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    (kept / "complete.json").write_text(json.dumps(done, indent=1) + "\n")


def read(kept: Path) -> list[Observed]:
    lines = (kept / "observed.jsonl").read_text().splitlines()
    return [cast(Observed, json.loads(line)) for line in lines]
