# SPDX-License-Identifier: GPL-2.0-only
"""Finding a process by its name, and what of its memory is merged, or huge pages."""

from pathlib import Path


def pid_of(name: str) -> int:
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            found = comm.read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        if found == name:
            return int(comm.parent.name)
    raise ProcessLookupError(f"no process is called {name}")


def _kib(pid: int, name: str) -> int:
    """Of all its memory, by what the kernel calls it."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def merged_kib(pid: int) -> int:
    """What of its memory is merged, whether ksmd comes there or not."""
    return _kib(pid, "KSM")


def huge_kib(pid: int) -> int:
    """What of its memory that belongs to no file is in huge pages."""
    return _kib(pid, "AnonHugePages")
