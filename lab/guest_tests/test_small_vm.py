# SPDX-License-Identifier: GPL-2.0-only
"""A virtual machine's use of pages is seen; its page tables are not its process's."""

import ctypes
import mmap
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nuksmlab import ksm as files
from nuksmlab import numa, paths, wait
from nuksmlab.ksm import Ksm

pytestmark = pytest.mark.vm
PAGES, AT, READS = 64, 0x64, 256  # as small_vm has them
SIZE = PAGES * mmap.PAGESIZE
MERGEABLE = 12  # advice to madvise(2)
# Each page of a process with mmu notifiers is read once in so many scans.
SCANS = 64 + 3


def with_byte(contents: bytes, byte: int) -> bytes:
    changed = bytearray(contents)
    changed[AT :: mmap.PAGESIZE] = bytes([byte]) * PAGES
    return bytes(changed)


def mergeable(contents: bytes) -> mmap.mmap:
    memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(MERGEABLE)
    memory.write(contents)
    return memory


class Machine:
    """A running small_vm."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.expect("ready")

    def expect(self, line: str) -> None:
        assert self.process.stdout
        assert self.process.stdout.readline() == f"{line}\n"

    def tell(self, number: int) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()


@contextmanager
def machine(contents: bytes, file: Path) -> Iterator[Machine]:
    """One whose memory is that; in the end all of it is as it has to be."""
    file.write_bytes(contents)
    with subprocess.Popen(
        [paths.SMALL_VM, file],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        running = Machine(process)
        yield running
        assert process.stdin
        process.stdin.close()
        running.expect("0 wrong")


@pytest.fixture
def engine(ksm: Ksm) -> Iterator[Ksm]:
    if not ksm.has_engine():
        pytest.skip("this kernel reads all pages in every scan")
    ksm.set_speed(files.FAST)
    before = ksm.read("look_cpu_permille")
    yield ksm
    ksm.write("look_cpu_permille", before)


def test_what_a_machine_writes_is_merged(engine: Ksm, tmp_path: Path) -> None:
    contents = with_byte(os.urandom(SIZE), 0)
    there = mergeable(with_byte(contents, 7))
    with machine(contents, tmp_path / "contents") as running:
        engine.start()
        engine.wait_scans(4)
        assert engine.merged() == 0
        for byte, merged in ((7, 2 * PAGES), (9, PAGES), (7, 2 * PAGES)):
            running.tell(byte)
            running.expect("done")
            engine.wait_scans(SCANS)
            assert engine.merged() == merged
    assert there[:] == with_byte(contents, 7)


def test_pages_follow_a_machine_that_reads_them(engine: Ksm, tmp_path: Path) -> None:
    """Whose use only its own page tables know."""
    contents = os.urandom(SIZE)
    with numa.running_on(0):
        there = mergeable(contents)
    address = ctypes.addressof(ctypes.c_char.from_buffer(there))

    def nodes() -> list[int]:
        return numa.nodes_of(os.getpid(), address, PAGES)

    with numa.running_on(1), machine(contents, tmp_path / "contents") as running:
        engine.merge(2 * PAGES)
        assert 0 in nodes(), "some are where nobody uses them"
        engine.write("look_cpu_permille", 1000)
        before = engine.read("used_local") + engine.read("used_remote")
        running.tell(READS)
        wait.until(lambda: set(nodes()) == {1}, lambda: f"{nodes()}", poll=0.1)
        used = engine.read("used_local") + engine.read("used_remote") - before
        assert used >= 4 * PAGES, "four looks make a page hot"
    assert there[:] == contents
