# SPDX-License-Identifier: GPL-2.0-only
"""A virtual machine by KVM, bound to one node; a workload in one of its own.

All of the machine's memory is mergeable, as QEMU has it by default: the guest
kernel's pages, too.
"""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nuksmlab import initramfs, numa, paths, wait
from nuksmlab.workload import Instance

PREFIX = "kvm "
# What the guest's kernel needs besides the workload's data.
SPARE_MIB = 80
# The kernel's messages are between answers only if it dies: of all, if any is let out.
DYING = 1
# To boot, or for a measured phase: one that hangs.
ANSWER_SECONDS = wait.HANG_SECONDS


@dataclass(frozen=True)
class Guest:
    """What a virtual machine boots, and on which node."""

    node: int
    mib: int
    kernel: Path
    initramfs: Path
    append: str

    def command(self) -> list[str]:
        """QEMU, which speaks for the guest's first serial line."""
        memory = f"memory-backend-ram,id=ram,size={self.mib}M"
        bound = f"host-nodes={self.node},policy=bind"
        return [
            *(str(paths.BOUND), str(self.node), "-"),
            *("qemu-system-x86_64", "-accel", "kvm", "-cpu", "host", "-nodefaults"),
            *("-display", "none", "-serial", "stdio", "-no-reboot"),
            *("-machine", "pc,memory-backend=ram", "-m", f"{self.mib}M"),
            *("-object", f"{memory},{bound}"),
            *("-kernel", str(self.kernel), "-initrd", str(self.initramfs)),
            *("-append", f"panic=-1 {self.append}"),
        ]


def threads_of(pid: int) -> str:
    """What each of its threads does, and for how long it did: to tell a virtual CPU
    that spins from one that waits for an interrupt."""
    said = []
    for task in sorted(Path("/proc").glob(f"{pid}/task/*")):
        with suppress(OSError):  # it has ended, or this kernel keeps no stacks
            name, ran = (task / "comm").read_text(), (task / "schedstat").read_text()
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            seconds = int(ran.split()[0]) / 1e9
            said.append(f"{name.strip()}: {state}, {seconds:.1f} s of CPU time")
            said.append((task / "stack").read_text().rstrip())
    return "\n".join(said)


@contextmanager
def in_time(process: subprocess.Popen[str]) -> Iterator[None]:
    """A guest that hangs is an error, and no wait: it is killed, and what it did then
    is told."""

    def end() -> None:
        doing = threads_of(process.pid)
        print(f"a virtual machine does not answer:\n{doing}", flush=True)
        process.kill()

    late = threading.Timer(ANSWER_SECONDS, end)
    late.start()
    try:
        yield
    finally:
        late.cancel()


class VirtualMachine(Instance):
    """An instance whose process is the machine's, seen from outside.

    The workload is the only process that the guest has.
    """

    spare_mib = SPARE_MIB

    def __init__(
        self, name: str, number: int, node: int, kib: int, kernel: Path
    ) -> None:
        self.kernel = kernel
        super().__init__(name, number, node, kib)
        self.pid = self.process.pid  # what the guest calls so is its own

    def _read(self) -> dict[str, Any]:
        with in_time(self.process):
            return super()._read()

    def _entries(self, kib: int) -> list[bytes]:  # noqa: ARG002
        """Of the guest's first file system."""
        program = paths.WORKLOAD.read_bytes()
        return [initramfs.entry("init", initramfs.PROGRAM, program)]

    def _arguments(self, name: str, number: int, kib: int) -> str:
        """Of its first process."""
        return f"{name} {number} - {kib}"

    def _command(self, name: str, number: int, kib: int) -> list[str]:
        archive = Path(f"/tmp/nuksm-initramfs-{number}")
        initramfs.write(archive, *self._entries(kib))
        arguments = self._arguments(name, number, kib)
        guest = Guest(
            self.node,
            kib // 1024 + self.spare_mib,
            self.kernel,
            archive,
            f"console=ttyS0 quiet loglevel={DYING} norandmaps -- {arguments}",
        )
        return guest.command()

    def pages_by_node(self) -> dict[int, int]:
        """Of all of the machine's memory, and of what QEMU itself has."""
        return numa.anonymous_pages_by_node(self.pid)
