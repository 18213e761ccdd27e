# SPDX-License-Identifier: GPL-2.0-only
"""Finding a process by its name."""

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
