# SPDX-License-Identifier: GPL-2.0-only
"""What a virtual machine writes is merged; its page tables are not its process's."""

import mmap
import os
import subprocess
from pathlib import Path

import pytest

from nuksmlab import ksm as files
from nuksmlab import paths
from nuksmlab.ksm import Ksm

pytestmark = pytest.mark.vm
PAGES, AT = 64, 0x64  # as vm_writer has them
SIZE = PAGES * mmap.PAGESIZE
MERGEABLE = 12  # advice to madvise(2)
# Each page of a process with mmu notifiers is read once in so many scans.
SCANS = 64 + 3


def with_byte(contents: bytes, byte: int) -> bytes:
    changed = bytearray(contents)
    changed[AT :: mmap.PAGESIZE] = bytes([byte]) * PAGES
    return bytes(changed)


def test_what_a_machine_writes_is_merged(ksm: Ksm, tmp_path: Path) -> None:
    if not ksm.has_engine():
        pytest.skip("this kernel reads all pages in every scan")
    contents = with_byte(os.urandom(SIZE), 0)
    (tmp_path / "contents").write_bytes(contents)
    there = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    there.madvise(MERGEABLE)
    there.write(with_byte(contents, 7))
    with subprocess.Popen(
        [paths.VM_WRITER, tmp_path / "contents"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as machine:
        assert machine.stdin
        assert machine.stdout
        assert machine.stdout.readline() == "ready\n"
        ksm.set_speed(files.FAST)
        ksm.start()
        ksm.wait_scans(4)
        assert ksm.merged() == 0
        for byte, merged in ((7, 2 * PAGES), (9, PAGES), (7, 2 * PAGES)):
            machine.stdin.write(f"{byte}\n")
            machine.stdin.flush()
            assert machine.stdout.readline() == "done\n"
            ksm.wait_scans(SCANS)
            assert ksm.merged() == merged
        machine.stdin.close()
        assert machine.stdout.readline() == "0 wrong\n"
    assert there[:] == with_byte(contents, 7)
