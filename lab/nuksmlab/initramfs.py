# SPDX-License-Identifier: GPL-2.0-only
"""Archives that a kernel unpacks as its first file system, in memory."""

import stat
from pathlib import Path

FILE, PROGRAM, FOLDER = (
    stat.S_IFREG | 0o644,
    stat.S_IFREG | 0o755,
    stat.S_IFDIR | 0o755,
)
LINK = stat.S_IFLNK | 0o777


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def entry(name: str, mode: int, data: bytes = b"") -> bytes:
    """One file of a cpio archive; of a link, the data is where it leads."""
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = "070701" + "".join(f"{field:08x}" for field in fields)
    return padded(f"{head}{name}\0".encode()) + padded(data)


def write(path: Path, *entries: bytes) -> None:
    path.write_bytes(b"".join((*entries, entry("TRAILER!!!", 0))))
