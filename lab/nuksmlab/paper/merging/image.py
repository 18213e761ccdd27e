# SPDX-License-Identifier: GPL-2.0-only
"""Holds what is in a file in memory that is offered for merging.

usage: image FILE. It says `ready`, and then obeys as a tenant does (tenant.c): `verify`
compares the memory with the file, `quit` ends it.
"""

import mmap
import os
import sys
from pathlib import Path

PAGE_BYTES = mmap.PAGESIZE
CHUNK = 1 << 20
# Linux 5.14. A fault for each page takes half a millisecond under User-Mode Linux.
MADV_POPULATE_READ = 22


def bad_pages(memory: mmap.mmap, path: Path) -> int:
    memory.madvise(MADV_POPULATE_READ)
    bad = 0
    with path.open("rb", buffering=0) as file:
        for at in range(0, len(memory), CHUNK):
            wanted, found = file.read(CHUNK), memory[at : at + CHUNK]
            if wanted != found:
                bad += sum(
                    wanted[page : page + PAGE_BYTES] != found[page : page + PAGE_BYTES]
                    for page in range(0, len(found), PAGE_BYTES)
                )
    return bad


def main() -> None:
    path = Path(sys.argv[1])
    size = path.stat().st_size
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    memory = mmap.mmap(-1, size, flags=flags)
    memory.madvise(mmap.MADV_MERGEABLE)
    with path.open("rb", buffering=0) as file:
        for at in range(0, size, CHUNK):
            memory[at : at + CHUNK] = file.read(CHUNK)
    print(f"ready pid={os.getpid()} pages={size // PAGE_BYTES}", flush=True)
    for line in sys.stdin:
        if line == "quit\n":
            print("ok", flush=True)
            return
        print(f"ok bad={bad_pages(memory, path)}", flush=True)


if __name__ == "__main__":
    main()
