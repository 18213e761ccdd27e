# SPDX-License-Identifier: GPL-2.0-only
"""What any user's process may do to make the program slow, or lie to root."""

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nuksmlab import paths, program, wait
from nuksmlab.ksm import STOP, UNMERGE, Ksm, process_stat
from nuksmlab.tenant import StartTenant, Tenant

pytestmark = pytest.mark.anywhere

PAGES = 256
ESCAPES = "\x1b[2J\x1b]0;owned\x07"

# Maps so many bytes and fills the first 256 pages alike, in memory that is
# mergeable. Then it does what each line that comes says.
PROCESS = f"""
import ctypes, mmap, platform, struct, sys, threading
size = int(sys.argv[1])
MAP_NORESERVE = 0x4000
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
memory = mmap.mmap(-1, size, flags)
memory.madvise(mmap.MADV_NOHUGEPAGE)
some = {PAGES} * mmap.PAGESIZE
memory[:some] = b"7" * some
memory.madvise(mmap.MADV_MERGEABLE, 0, some)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
protect = ctypes.CDLL(None).mprotect
protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc = ctypes.CDLL(None, use_errno=True)
behead = threading.Event()

def drop_command_line():
    PR_SET_MM, PR_SET_MM_MAP = 35, 14
    with open("/proc/self/stat") as stat:
        fields = [0, 0, 0, *stat.read().rpartition(")")[2].split()]
    of = [int(fields[at]) for at in (26, 27, 45, 46, 47, 47, 28)]
    libc.sbrk.restype = ctypes.c_void_p
    of[5] = libc.sbrk(0)
    ends = [address, address, int(fields[50]), int(fields[51]), 0]
    map = struct.pack("12QIi", *of, *ends, 0, -1)
    assert libc.prctl(PR_SET_MM, PR_SET_MM_MAP, map, len(map), 0) == 0

def obey():
    for line in sys.stdin:
        if line == "mark\\n":
            memory.madvise(mmap.MADV_MERGEABLE)
        if line == "hide\\n":
            assert protect(address, size, 0) == 0
        if line == "rename\\n":
            with open("/proc/self/comm", "w") as comm:
                comm.write({ESCAPES!r})
        if line == "drop the command line\\n":
            drop_command_line()
        if line == "end the leader\\n":
            behead.set()
        print("done", flush=True)

print("ready", flush=True)
threading.Thread(target=obey).start()
behead.wait()
libc.syscall({{"x86_64": 60, "aarch64": 93}}[platform.machine()], 0)
"""


class Hostile:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid
        self.answer()

    def answer(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), "the process ended"

    def do(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        self.answer()


@contextmanager
def hostile(size: int) -> Iterator[Hostile]:
    command = [sys.executable, "-c", PROCESS, str(size)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Hostile(process)
    finally:
        process.kill()
        process.communicate()


def merge(ksm: Ksm, pid: int) -> None:
    """Until its pages are one; then nothing is looked at any more."""
    ksm.set_speed({"pages_to_scan": 2000, "sleep_millisecs": 10})
    ksm.start()
    wait.until(
        lambda: process_stat(pid)["ksm_merging_pages"] >= PAGES,
        lambda: f"{PAGES} merged pages, {process_stat(pid)}",
    )
    ksm.stop()


def bytes_read() -> int:
    """By this process and those it has waited for, as proc(5) counts them."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar:"))


def test_of_sixteen_tebibytes_of_nothing_nothing_is_read(ksm: Ksm) -> None:
    with hostile(16 << 40) as sparse:
        merge(ksm, sparse.pid)
        before = bytes_read()
        program.status()
        small = bytes_read() - before
        # Only now: ksmd itself would be busy with the holes for minutes.
        sparse.do("mark")
        before = bytes_read()
        row = next(
            row for row in program.status()["tenants"] if row["pid"] == sparse.pid
        )
        large = bytes_read() - before
    assert row["merged_mappings"] == PAGES
    # What is there is read. All of its pagemap would be 32 GiB.
    assert large - small < 1 << 20


def test_neither_a_missing_command_line_nor_a_missing_leader_hides(ksm: Ksm) -> None:
    size = PAGES * resource.getpagesize()
    with hostile(size) as nameless, hostile(size) as headless:
        for process in (nameless, headless):
            merge(ksm, process.pid)
        nameless.do("drop the command line")
        headless.do("end the leader")
        stat = Path(f"/proc/{headless.pid}/stat")
        wait.until(lambda: ") Z " in stat.read_text(), stat.read_text)
        assert not Path(f"/proc/{nameless.pid}/cmdline").read_bytes()
        status = program.status()
        seen = {row["pid"]: row["merged_mappings"] for row in status["tenants"]}
        assert (seen[nameless.pid], seen[headless.pid]) == (PAGES, PAGES)
        done = program.run("unmerge", "--pid", str(headless.pid))
        assert done.returncode == 0, done.stderr
        assert f"{PAGES} of {PAGES} mappings un-merged" in done.stdout
        assert program.read_json("unmerge", "--dry-run")["out_of_sight"] == 0
    # Nobody is left, and ksmd did not come by: that is said, and has to fit.
    hidden = program.read_json("unmerge", "--dry-run")["out_of_sight"]
    assert hidden >= 2 * PAGES
    assert any("of no tenant in sight" in note for note in program.status()["notes"])


def test_what_refuses_to_be_unmerged_is_not_unmerged_at_once(
    merged: list[Tenant], ksm: Ksm
) -> None:
    with hostile(PAGES * resource.getpagesize()) as hidden:
        merge(ksm, hidden.pid)
        hidden.do("hide")
        done = program.run("unmerge")
        assert done.returncode == 1
        assert f"denied {PAGES}" in done.stdout
        assert f"{PAGES} mappings are still merged" in done.stdout
        assert ksm.read("run") == STOP
        assert process_stat(hidden.pid)["ksm_merging_pages"] == PAGES
        assert all(
            tenant.equal_pages_by_node() == {tenant.spec.node: tenant.equal_pages}
            for tenant in merged
        ), "the others were un-merged one by one"
        done = program.run("unmerge", "--force")
        assert done.returncode == 0, done.stderr
        assert ksm.read("run") == UNMERGE
        assert process_stat(hidden.pid)["ksm_merging_pages"] == 0
    assert [tenant.bad_pages() for tenant in merged] == [0] * len(merged)


def test_no_name_reaches_the_terminal_as_it_is(ksm: Ksm) -> None:
    with hostile(PAGES * resource.getpagesize()) as actor:
        actor.do("rename")
        merge(ksm, actor.pid)
        for command in (
            ("status",),
            ("sharing",),
            ("place", "--dry-run"),
            ("estimate", "--pid", str(actor.pid)),
        ):
            done = program.run(*command)
            assert done.returncode == 0, done.stderr
            assert "owned" in done.stdout
            assert not set(done.stdout + done.stderr) & {"\x1b", "\x07"}


def test_nobody_is_a_virtual_machine_by_its_own_account(
    start: StartTenant, ksm: Ksm
) -> None:
    as_qemu = ("bash", "-c", 'exec -a qemu-system-x86_64 "$0" "$@"')
    tenants = [start("guest=web1", 0, prefix=as_qemu), start("guest=web2", 1)]
    line = Path(f"/proc/{tenants[0].pid}/cmdline").read_text()
    assert line.startswith("qemu-system-x86_64\0--name\0guest=web1\0")
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    names = {row["name"] for row in program.status()["tenants"]}
    assert not names & {"web1", "web2"}
    assert names


def test_a_user_namespace_gives_no_capability_here(merged: list[Tenant]) -> None:
    def inside(*command: str) -> subprocess.CompletedProcess[str]:
        line = ["unshare", "--user", "--map-root-user", str(paths.NUKSM), *command]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    status = inside("status")
    assert status.returncode == 0, status.stderr
    assert "outside of this user namespace" in status.stdout
    doctor = inside("doctor")
    assert doctor.returncode == 1
    assert "CAP_SYS_ADMIN is missing" in doctor.stdout
    assert len(merged) > 1
