# SPDX-License-Identifier: GPL-2.0-only
"""Finds out whether KVM works here, and remembers it.

That /dev/kvm opens is not enough: in some virtual machines QEMU then aborts or
the guest hangs. So a small machine is booted once.
"""

import os
import platform
import re
import subprocess
import tempfile
import time
from pathlib import Path

from nuksmlab import machine, paths

PROBE = machine.Machine(nodes=1, node_mib=512)
PROBE_SECONDS = 60.0
# For so long it is believed that KVM fails: the host may have been busy.
FAILS_SECONDS = 24 * 3600.0
EMULATOR = "qemu-system-x86_64"


def qemu_version() -> str:
    out = subprocess.run(
        [EMULATOR, "--version"], capture_output=True, text=True, check=True
    )
    match = re.search(r"version ([0-9.]+)", out.stdout)
    return match[1] if match else "unknown"


def probe(kernel: Path) -> bool:
    """Boots with KVM; true if a command in the guest ran."""
    with tempfile.TemporaryDirectory(dir=paths.BUILD, prefix="kvm-probe-") as output:
        try:
            status = machine.boot(
                PROBE,
                kernel,
                ["true"],
                Path(output),
                kvm=True,
                seconds=PROBE_SECONDS,
                quiet=True,
            )
        except machine.MachineError:
            return False
        return status == 0


def is_known(verdict: Path) -> bool:
    if not verdict.is_file():
        return False
    age = time.time() - verdict.stat().st_mtime
    return verdict.read_text() == "works" or age < FAILS_SECONDS


def kvm_works(kernel: Path) -> bool:
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    verdict = paths.cache() / f"kvm-{platform.release()}-qemu-{qemu_version()}"
    if not is_known(verdict):
        print("  trying whether KVM works here", flush=True)
        verdict.parent.mkdir(parents=True, exist_ok=True)
        new = verdict.with_name(f"{verdict.name}.{os.getpid()}")
        new.write_text("works" if probe(kernel) else "fails")
        new.replace(verdict)
    return verdict.read_text() == "works"
