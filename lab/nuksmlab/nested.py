# SPDX-License-Identifier: GPL-2.0-only
"""Runs a command in an emulated machine, inside which guests by KVM are to run.

The machine has booted with one CPU; the command has all of them. QEMU 7.2 translates
code without locking the page that it is on: where another CPU patches that code at
this moment, a breakpoint of the patching can stay, of which the kernel then dies. The
first guest by KVM patches the scheduler itself, which all other CPUs are in. So one
is made while there are none, and kept for as long as the command runs.
"""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

KVM_CREATE_VM = 0xAE01
MODULES = ("kvm-amd", "kvm-intel")  # or built in


def keep_a_guest() -> None:
    """One without memory or CPUs; programs that this one becomes inherit it."""
    for module in MODULES:
        subprocess.run(["modprobe", "--quiet", module], check=False)
    device = os.open("/dev/kvm", os.O_RDWR)
    os.set_inheritable(fcntl.ioctl(device, KVM_CREATE_VM, 0), True)
    os.close(device)


def start_all_cpus() -> None:
    for switch in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/online"):
        switch.write_text("1")


if __name__ == "__main__":
    keep_a_guest()
    start_all_cpus()
    os.execvp(sys.argv[1], sys.argv[1:])
