# SPDX-License-Identifier: GPL-2.0-only
"""Whether a process has ended, whoever is to hear of it."""

from pathlib import Path


def is_gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True
