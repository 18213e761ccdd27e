# SPDX-License-Identifier: GPL-2.0-only
"""What must hold at any moment in which nobody acts."""

import os
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from nuksmlab import machine, stress, wait
from nuksmlab.tenant import Tenant

AUDIT = stress.DEBUGFS / "nuksm" / "audit"
ENTRY = 8
PAGE = os.sysconf("SC_PAGE_SIZE")
PRESENT, PAGED_OUT, OF_A_FILE = 1 << 63, 1 << 62, 1 << 61
SOFT_DIRTY, WRITE_PROTECTED = 1 << 55, 1 << 57
FRAME = (1 << 55) - 1
MAPPED, ANONYMOUS, SWAP_CACHE, SWAP_BACKED = 1 << 11, 1 << 12, 1 << 13, 1 << 14
ZERO_PAGE, FREE, SLAB = 1 << 24, 1 << 10, 1 << 7
SHOWN = 8
AT_ONCE = 64


class WrongError(Exception):
    """The kernel does not do, or say, what it must."""


class Log:
    """What the kernel has said since."""

    def __init__(self) -> None:
        self.file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self.file, 0, os.SEEK_END)

    def _records(self) -> Iterator[str]:
        while True:
            try:
                yield os.read(self.file, 8192).decode(errors="replace")
            except BlockingIOError:
                return
            except BrokenPipeError:
                continue  # some were overwritten: go on with the next one

    def check(self) -> None:
        """Raises what the kernel reports as wrong."""
        text = "".join(record.partition(";")[2] for record in self._records())
        if faults := machine.faults(text):
            raise WrongError("the kernel reports: " + "; ".join(faults))


def parse_audit(text: str) -> list[str]:
    """The comparisons that differ, which is all that the kernel prints, and counts."""
    wrong = re.findall(r"^\S+ -?\d+ counted=-?\d+ walked=-?\d+$", text, re.MULTILINE)
    verdict = text.rstrip().rpartition("\n")[2]
    wanted = f"audit: {len(wrong)} differences" if wrong else "audit: ok"
    return wrong if verdict == wanted else [*wrong, verdict]


def check_audit() -> None:
    """KSM's counters are what a walk of all that it tracks finds."""
    if AUDIT.exists() and (wrong := parse_audit(AUDIT.read_text())):
        raise WrongError("counters differ from what is there: " + "; ".join(wrong))


def check_intact(tenants: Iterable[Tenant]) -> None:
    """Nothing that they keep was lost, and the counters are right."""
    assert all(tenant.bad_pages() == 0 for tenant in tenants)
    check_audit()


def _entries(path: Path, first: int, count: int) -> "array[int]":
    entries = array("Q")
    with path.open("rb", buffering=0) as file:
        file.seek(first * ENTRY)
        entries.frombytes(file.read(count * ENTRY))
    return entries


def frames(pid: int, address: int, pages: int) -> list[int]:
    """Those that a part of a process's memory maps; what is not mapped has none."""
    path = Path(f"/proc/{pid}/pagemap")
    entries = _entries(path, address // PAGE, pages)
    return [entry & FRAME for entry in entries if entry & PRESENT]


def slots(pid: int, address: int, pages: int) -> list[int]:
    """Those in swap that a part of a process's memory has been paged out to."""
    entries = _entries(Path(f"/proc/{pid}/pagemap"), address // PAGE, pages)
    return [entry & FRAME for entry in entries if entry & PAGED_OUT]


def marks(pid: int, address: int, pages: int, mark: int) -> list[bool]:
    """Which pages are marked as written, SOFT_DIRTY, or by userfaultfd."""
    entries = _entries(Path(f"/proc/{pid}/pagemap"), address // PAGE, pages)
    return [bool(entry & mark) for entry in entries]


def mappings(pid: int) -> list[int]:
    """The frames that a process maps and no file has, one for each mapping."""
    return _all_frames(pid, PRESENT)


def all_slots(pid: int) -> list[int]:
    """Those in swap that a process's memory has been paged out to."""
    return _all_frames(pid, PAGED_OUT)


def _all_frames(pid: int, mark: int) -> list[int]:
    """Of all entries that have the mark, but those of files."""
    entries = array("Q")
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as file:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            start, end = (int(part, 16) // PAGE for part in line.split()[0].split("-"))
            if start * PAGE >= 1 << 47:
                continue  # the kernel's own page, which has no entries
            part = os.pread(file.fileno(), (end - start) * ENTRY, start * ENTRY)
            entries.frombytes(part)
    wanted = mark | OF_A_FILE
    return [entry & FRAME for entry in entries if entry & wanted == mark]


def of_frames(name: str, frames: Iterable[int]) -> dict[int, int]:
    """What a file with an entry for each frame says of these."""
    wanted = sorted(frames)
    result: dict[int, int] = {}
    with (Path("/proc") / name).open("rb", buffering=0) as file:
        for first in wanted:
            if first in result:
                continue
            file.seek(first * ENTRY)
            entries = array("Q", file.read(AT_ONCE * ENTRY))
            result.update(enumerate(entries, first))
    return {frame: result[frame] for frame in wanted}


def wrongly_mapped(pids: Iterable[int]) -> list[str]:
    """Pages that these processes map more or less often than the kernel counts.

    What moves while this looks is left out.
    """
    pids = list(pids)
    before = Counter(frame for pid in pids for frame in mappings(pid))
    counts, flags = of_frames("kpagecount", before), of_frames("kpageflags", before)
    after = Counter(frame for pid in pids for frame in mappings(pid))
    return [
        f"frame {frame:#x}: {mapped} mappings, counted {counts[frame]}"
        for frame, mapped in before.items()
        if after[frame] == mapped != counts[frame]
        and flags[frame] & ANONYMOUS
        and not flags[frame] & ZERO_PAGE
    ]


def check_mappings(pids: Iterable[int]) -> None:
    """Each page of these processes is mapped as often as the kernel counts.

    Nobody else may have these pages. A process that has ended may take a moment to
    give back what it had.
    """
    pids = list(pids)
    wrong: list[str] = []

    def none() -> bool:
        wrong[:] = wrongly_mapped(pids)
        return not wrong

    wait.until(
        none,
        lambda: f"{len(wrong)} pages rightly mapped: {'; '.join(wrong[:SHOWN])}",
    )


def unmapped_pages() -> set[int]:
    """Frames of anonymous pages that nobody maps at this moment."""
    flags = array("Q")
    with Path("/proc/kpageflags").open("rb", buffering=0) as file:
        while some := file.read(ENTRY << 17):
            flags.frombytes(some)
    other = MAPPED | SWAP_CACHE | FREE | SLAB
    wanted = ANONYMOUS | SWAP_BACKED
    return {
        frame
        for frame, flag in enumerate(flags)
        if flag & wanted == wanted and not flag & other
    }


def check_lost() -> None:
    """No page stays unmapped: somebody took a reference and has forgotten it.

    A page on its way from or to a process is mapped, or free, a moment later; one in a
    CPU's list when that list is emptied, which compaction does.
    """
    lost: set[int] | None = None

    def none() -> bool:
        nonlocal lost
        stress.put(Path("/proc/sys/vm/compact_memory"), 1)
        there = unmapped_pages()
        lost = there if lost is None else lost & there
        return not lost

    def what() -> str:
        flags = of_frames("kpageflags", lost or ())
        shown = [f"{frame:#x} ({flag:#x})" for frame, flag in flags.items()][:SHOWN]
        return f"an owner of {len(flags)} pages, by frame (flags): {shown}"

    wait.until(none, what)
