# SPDX-License-Identifier: GPL-2.0-only
"""Where trials can be run: in an emulated machine that counts, or right here."""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from nuksmlab import accelerator, counter, guard, machine, numa, paths, perf, virtual
from nuksmlab.ksm import Ksm
from nuksmlab.paper.extent import Part

GUEST = (sys.executable, "-m", "nuksmlab.paper.guest")
BOOT_SECONDS = 3600.0
# On whoever's machine it is, all in all.
HOST_SECONDS = 3600.0
# For a trial that is ended to un-merge all pages and put KSM's settings back.
PUTS_BACK_SECONDS = 600.0
BALANCING = Path("/proc/sys/kernel/numa_balancing")


class Where(Protocol):
    """Runs the plan that lies in a directory, and leaves there what it observed."""

    @property
    def kernel(self) -> str: ...

    @property
    def option(self) -> str:
        """Of the command that runs it."""
        ...

    @property
    def programs(self) -> Sequence[Path]:
        """That could change the result."""
        ...

    def describe(self, part: Part) -> str: ...

    def lacks(self, part: Part) -> str | None:
        """Why the part cannot be run here."""
        ...

    def run(self, part: Part, kept: Path) -> None: ...


def emulated(shape: machine.Machine) -> str:
    return (
        f"{shape.nodes} nodes of one CPU and {shape.node_mib} MiB, emulated by QEMU "
        f"{accelerator.qemu_version()}"
    )


def has_guests(part: Part) -> bool:
    return any(trial["workload"].startswith(virtual.PREFIX) for trial in part.trials)


class Emulation:
    """A machine of its own for each part, in which accesses are counted."""

    option = ""

    def __init__(self, image: Path) -> None:
        self.image = image
        self.kernel = image.name
        self.programs = (
            *(paths.WORKLOAD, paths.BOUND, paths.COUNTER, paths.NUKSM),
            image,
        )

    def describe(self, part: Part) -> str:
        return emulated(part.machine)

    def lacks(self, part: Part) -> str | None:  # noqa: ARG002 (it makes what is needed)
        return None

    def run(self, part: Part, kept: Path) -> None:
        status = machine.boot(
            part.machine,
            self.image,
            [*GUEST, str(self.image)],
            kept,
            kvm=False,
            seconds=BOOT_SECONDS,
            qemu_options=counter.qemu_options(part.machine, part.caches, kept),
            nested=has_guests(part),
        )
        if status != 0:
            raise machine.MachineError(f"{part.name} ended with status {status}")


class Host:
    """This machine, for an hour; run times are measured, and nothing is counted."""

    option = " HOST=1"
    programs = (paths.WORKLOAD, paths.BOUND, paths.NUKSM)

    def __init__(self, seconds: float = HOST_SECONDS) -> None:
        self.ends = time.monotonic() + seconds
        self.kernel = platform.release()
        self.nodes = numa.online()
        if len(self.nodes) < 2:
            raise machine.MachineError("this machine has one node: HOST=1 needs two")
        if not Ksm().has_engine():
            raise machine.MachineError(
                f"this machine runs {self.kernel}, which does not place merged pages: "
                "HOST=1 needs our kernel, which make kernel-deb packages"
            )
        if os.geteuid() != 0:
            raise machine.MachineError("HOST=1 needs root")
        if BALANCING.exists() and BALANCING.read_text().strip() != "0":
            raise machine.MachineError(
                "automatic NUMA balancing would move pages, too: "
                "sysctl kernel.numa_balancing=0 before HOST=1"
            )

    def describe(self, part: Part) -> str:  # noqa: ARG002 (it is the same for all)
        counted = " and ".join(perf.find_events() or ("no accesses",))
        return f"this machine, {len(self.nodes)} nodes, counts {counted}"

    def lacks(self, part: Part) -> str | None:
        if self.nodes[: part.machine.nodes] != list(range(part.machine.nodes)):
            return f"needs {part.machine.nodes} nodes"
        return None

    def run(self, part: Part, kept: Path) -> None:
        environment = {
            **os.environ,
            "NUKSM_OUTPUT": str(kept),
            "PYTHONPATH": str(paths.REPOSITORY / "lab"),
        }
        command = [*GUEST, f"/boot/vmlinuz-{self.kernel}"]
        process = guard.start(command, grace=PUTS_BACK_SECONDS, environment=environment)
        try:
            status = process.wait(max(self.ends - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            raise machine.MachineError(
                f"{part.name}: the time is over; the same command goes on with it"
            ) from None
        finally:
            guard.end(process)
        if status != 0:
            raise machine.MachineError(f"{part.name} ended with status {status}")
