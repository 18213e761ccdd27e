# SPDX-License-Identifier: GPL-2.0-only
"""A clean Debian root as an image, of the host's release; `python -m` says where.

A file system image keeps owners and modes, whoever runs the machine that mounts it.
"""

import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from nuksmlab import guard, machine, paths

# Beyond what every Debian has: the init to be tested, and what runs the tests.
PACKAGES = ("systemd-sysv", "python3")


def as_root(*command: str | Path) -> None:
    """Asks nothing: who is not root is one whom sudo asks for no password.

    When this process is ended, the command has time to undo what it has mounted.
    """
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    process = guard.start(
        [*sudo, *map(str, command)],
        grace=60,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        environment=machine.environment(),
    )
    try:
        assert process.stdout
        said = process.stdout.read().decode(errors="replace")
    finally:
        guard.end(process)
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} failed:\n{said[-2000:]}")


def image() -> Path:
    """From the cache, or made now."""
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    path = paths.cache() / "debian" / f"{suite}-{'-'.join(PACKAGES)}.squashfs"
    if path.is_file():
        return path
    print(f"making a Debian root ({suite})", file=sys.stderr, flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=path.parent, prefix=".new-"))
    try:
        root, new = directory / "root", directory / "image"
        include = f"--include={','.join(PACKAGES)}"
        as_root("debootstrap", "--variant=minbase", include, suite, root)
        as_root("rm", "-r", root / "var/cache/apt", root / "var/lib/apt/lists")
        # Emulated CPUs unpack this quickly.
        as_root("mksquashfs", root, new, "-comp", "lz4", "-no-xattrs", "-quiet")
        new.rename(path)
    finally:
        as_root("rm", "-rf", "--one-file-system", directory)
    return path


if __name__ == "__main__":
    guard.unwind_when_terminated()
    print(image())
