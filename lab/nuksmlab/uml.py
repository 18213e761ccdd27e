# SPDX-License-Identifier: GPL-2.0-only
"""Boots User-Mode Linux, a kernel that is a process, and runs one command in it.

One node, native speed: for the engine's index, which needs no nodes. One CPU, or with
newer kernels several. The guest sees the host's files read-only, and one output
directory read-write.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nuksmlab import machine

# Where it notes its number, else in the user's home, which one that is killed leaves
# there; and its memory is a file in TMP, else in /dev/shm.
STARTS = 'notes=$TMPDIR/ && unset TMPDIR && exec "$0" uml_dir="$notes" "$@"'


@dataclass(frozen=True)
class Guest:
    kernel: Path
    memory_mib: int
    cpus: int = 1


def init_script(output: Path) -> str:
    """The first process: mounts what programs expect, runs the command, ends.

    Nothing is mounted on /tmp: the repository itself may be there.
    """
    place = shlex.quote(str(output))
    return f"""#!/bin/sh
PATH={shlex.quote(machine.environment()["PATH"])}
export PATH
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t debugfs debugfs /sys/kernel/debug
mount -t hostfs -o {place} none {place}
TMPDIR={place}
export TMPDIR
sh {place}/guest.sh
busybox poweroff -f
"""


def command_line(guest: Guest, output: Path) -> list[str]:
    # With several it runs processes by seccomp only, by ptrace else.
    several = [f"ncpus={guest.cpus}", "seccomp=on"] if guest.cpus > 1 else []
    return [
        *("sh", "-c", STARTS),
        str(guest.kernel),
        f"mem={guest.memory_mib}M",
        *several,
        machine.RCU_WAITS,
        *("rootfstype=hostfs", "rootflags=/", "ro", "quiet"),
        *("con=null", "con0=null,fd:1", "ssl=null"),
        f"init={output / 'init.sh'}",
    ]


def boot(
    guest: Guest,
    command: Sequence[str],
    output: Path,
    seconds: float,
    held: Sequence[int] = (),
) -> int:
    """Runs the command in the guest; returns its exit status."""
    output = output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    init = output / "init.sh"
    init.write_text(init_script(output))
    init.chmod(0o755)
    line = command_line(guest, output)
    return machine.run(line, command, output, seconds, held=held)
