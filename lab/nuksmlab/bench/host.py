# SPDX-License-Identifier: GPL-2.0-only
"""What the host has to have for a guest of several GiB under User-Mode Linux."""

import fcntl
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, TypedDict

from nuksmlab import kernels, paths

MAX_MAP_COUNT = Path("/proc/sys/vm/max_map_count")
# User-Mode Linux maps each page of a guest's process for itself.
MAPPINGS = 4_000_000


class HostError(Exception):
    """The host lacks something; the text says what to do."""


class Host(TypedDict):
    processor: str
    kernel: str
    load_before: float  # processes that wanted a CPU in the minute before
    shared_cache_kib: int  # the largest; 0 if the host does not say


def shared_cache_kib() -> int:
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    return max(
        (int(size.read_text().strip().removesuffix("K")) for size in sizes), default=0
    )


def neighbour_cpu() -> int:
    """One to keep free of everything else."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise HostError("a neighbour needs a CPU of its own, and there is only one")
    return cpus[-1]


def describe() -> Host:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = (line.split(":")[1].strip() for line in lines if "model name" in line)
    return {
        "processor": next(models, platform.machine()),
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
        "shared_cache_kib": shared_cache_kib(),
    }


def check_room(mib: int) -> None:
    """The guest's memory is a file, in the directory that the kernel chooses so."""
    chosen = (os.environ.get(name) for name in ("TMPDIR", "TMP", "TEMP"))
    directory = next(filter(None, chosen), "/dev/shm")
    free = shutil.disk_usage(directory).free // 2**20
    if free < mib:
        raise HostError(
            f"the guest's memory needs {mib} MiB in {directory}, where {free} MiB are "
            "free: set TMPDIR to a directory that has them, best on a tmpfs"
        )


def set_max_map_count(count: int) -> None:
    if os.access(MAX_MAP_COUNT, os.W_OK):
        MAX_MAP_COUNT.write_text(str(count))
        return
    setting = f"vm.max_map_count={count}"
    done = subprocess.run(["sudo", "-n", "sysctl", "-q", "-w", setting], check=False)
    if done.returncode != 0:
        raise HostError(f"this has to be set by root: sysctl -w {setting}")


def is_alone(noted: TextIO) -> bool:
    """Whether nobody else holds the note, as all do who need the limit."""
    try:
        fcntl.flock(noted, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def raise_limit(noted: TextIO) -> None:
    before = int(MAX_MAP_COUNT.read_text())
    if is_alone(noted) and before != MAPPINGS:  # else perhaps left by who was killed
        noted.truncate(0)
    if before < MAPPINGS:
        set_max_map_count(MAPPINGS)
        noted.seek(0)
        if not noted.read():
            noted.write(str(before))
            noted.flush()


def put_back(noted: TextIO) -> None:
    noted.seek(0)
    before = noted.read()
    noted.truncate(0)
    if before:
        set_max_map_count(int(before))


@contextmanager
def many_mappings() -> Iterator[None]:
    """Raises the kernel's limit of mappings per process, as long as anybody needs it.

    The first one notes what it was, and the last puts that back, one at a time.
    """
    turn = "max_map_count.turn"
    paths.cache().mkdir(parents=True, exist_ok=True)
    with (paths.cache() / "max_map_count").open("a+") as noted:
        with kernels.alone(turn):
            raise_limit(noted)
            fcntl.flock(noted, fcntl.LOCK_SH)
        try:
            yield
        finally:
            with kernels.alone(turn):
                if is_alone(noted):
                    put_back(noted)
                fcntl.flock(noted, fcntl.LOCK_UN)
