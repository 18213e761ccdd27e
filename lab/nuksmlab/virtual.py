# SPDX-License-Identifier: GPL-2.0-only
"""A workload in a virtual machine of its own, by KVM, bound to one node.

All of the machine's memory is mergeable, as QEMU has it by default: the guest
kernel's pages, too. The workload is the only process there is.
"""

import os
import threading
from pathlib import Path
from typing import Any

from nuksmlab import numa, paths
from nuksmlab.workload import Instance

PREFIX = "kvm "
# What the guest's kernel needs besides the workload's data.
SPARE_MIB = 80
# To boot, or for a measured phase.
ANSWER_SECONDS = 240.0


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def archive(name: str, mode: int, data: bytes) -> bytes:
    """One file of a cpio archive, in the format that the kernel unpacks."""
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = "070701" + "".join(f"{field:08x}" for field in fields)
    return padded(f"{head}{name}\0".encode()) + padded(data)


def write_initramfs(path: Path) -> None:
    program = paths.WORKLOAD.read_bytes()
    files = archive("init", 0o100755, program) + archive("TRAILER!!!", 0, b"")
    path.write_bytes(files)


class VirtualMachine(Instance):
    """An instance whose process is the machine's, seen from outside."""

    def __init__(
        self, name: str, number: int, node: int, kib: int, kernel: Path
    ) -> None:
        self.kernel = kernel
        super().__init__(name, number, node, kib)

    def _read(self) -> dict[str, Any]:
        """Two runs of seven hung, why is not known: that is an error, and no wait."""
        late = threading.Timer(ANSWER_SECONDS, self.process.kill)
        late.start()
        try:
            return super()._read()
        finally:
            late.cancel()

    def _command(self, name: str, number: int, kib: int) -> list[str]:
        initramfs = Path(f"/tmp/nuksm-initramfs-{number}")
        write_initramfs(initramfs)
        mib = kib // 1024 + SPARE_MIB
        memory = f"memory-backend-ram,id=ram,size={mib}M"
        bound = f"host-nodes={self.node},policy=bind"
        arguments = f"{name} {number} - {kib}"
        return [
            *(str(paths.BOUND), str(self.node), "-"),
            *("qemu-system-x86_64", "-accel", "kvm", "-cpu", "host", "-nodefaults"),
            *("-display", "none", "-serial", "stdio", "-no-reboot"),
            *("-machine", "pc,memory-backend=ram", "-m", f"{mib}M"),
            *("-object", f"{memory},{bound}"),
            *("-kernel", str(self.kernel), "-initrd", str(initramfs)),
            *("-append", f"console=ttyS0 quiet loglevel=0 panic=-1 -- {arguments}"),
        ]

    def pages_by_node(self) -> dict[int, int]:
        """Of all of the machine's memory, and of what QEMU itself has."""
        return numa.anonymous_pages_by_node(self.process.pid)

    def renice(self, nice: int) -> None:
        os.setpriority(os.PRIO_PROCESS, self.process.pid, nice)
