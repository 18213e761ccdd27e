# SPDX-License-Identifier: GPL-2.0-only
"""Memory of guests with Debian's kernel and a small Debian user space, as files.

Each has read all of its files, and written random data; then it stands still.
"""

import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from nuksmlab import accelerator
from nuksmlab.virtual import in_time
from nuksmlab.workload import read_answer

LOAD_MIB = 8


def command(kernel: Path, archive: Path, mib: int, image: Path) -> list[str]:
    """QEMU, whose guest's memory is the file."""
    backend = f"memory-backend-file,id=ram,size={mib}M,share=on,mem-path={image}"
    kvm = accelerator.kvm_works(kernel)
    return [
        accelerator.EMULATOR,
        *("-accel", "kvm" if kvm else "tcg", "-nodefaults", "-display", "none"),
        *("-machine", "pc,memory-backend=ram", "-m", f"{mib}M", "-object", backend),
        *("-serial", "stdio", "-serial", "null", "-no-reboot"),
        *("-kernel", str(kernel), "-initrd", str(archive)),
        *("-append", f"panic=-1 console=ttyS1 quiet LOAD_MIB={LOAD_MIB}"),
    ]


def capture(kernel: Path, archive: Path, mib: int, images: Sequence[Path]) -> list[int]:
    """Boots as many guests as there are images. Returns their files' checksums."""
    with ExitStack() as stack:
        guests = []
        for image in images:
            # Not under a guard, whose command has no standard input.
            ends_with_this = ("setpriv", "--pdeathsig", "KILL")
            guest = subprocess.Popen(
                [*ends_with_this, *command(kernel, archive, mib, image)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(guest.communicate)
            stack.callback(guest.kill)
            guests.append(guest)
        found = []
        for number, guest in enumerate(guests, 1):
            name = f"guest {number}"
            for what in ("ready", "load", "checksum"):
                if what != "ready":
                    assert guest.stdin is not None
                    guest.stdin.write(f"{what}\n")
                    guest.stdin.flush()
                with in_time(guest):
                    answer = read_answer(guest, name)
            print(f"  {name} of {len(images)} has started, and worked", flush=True)
            found.append(int(answer["checksum"]))
    return found
