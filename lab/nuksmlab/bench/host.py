# SPDX-License-Identifier: GPL-2.0-only
"""What the host has to have for a guest of several GiB under User-Mode Linux."""

import fcntl
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, TypedDict

from nuksmlab import guard

MAX_MAP_COUNT = Path("/proc/sys/vm/max_map_count")
# User-Mode Linux maps each page of a guest's process for itself.
MAPPINGS = 4_000_000
# Raised by so much, the limit itself says what it was, to every user. Nobody has less
# than LEAST: with 0 nothing could be mapped any more.
RAISED = 1_000_000_000
LEAST = 1000


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
    chosen = (os.environ.get(name) for name in ("TMP", "TEMP"))  # TMPDIR: see uml.py
    directory = next(filter(None, chosen), "/dev/shm")
    free = shutil.disk_usage(directory).free // 2**20
    if free < mib:
        raise HostError(
            f"the guest's memory needs {mib} MiB in {directory}, where {free} MiB are "
            "free: set TMP to a directory that has them, best on a tmpfs"
        )


def set_max_map_count(count: int) -> None:
    try:
        if os.access(MAX_MAP_COUNT, os.W_OK):
            MAX_MAP_COUNT.write_text(str(count))
        else:
            setting = f"vm.max_map_count={count}"
            command = ["sudo", "-n", "sysctl", "-q", "-w", setting]
            subprocess.run(command, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        # What root sets to MAPPINGS stays.
        setting = f"vm.max_map_count={min(count, MAPPINGS)}"
        raise HostError(f"this has to be set by root: sysctl -w {setting}") from error


def max_map_count() -> int:
    return int(MAX_MAP_COUNT.read_text())


def is_alone(held: TextIO) -> bool:
    """Whether nobody else holds the limit, as all do who need it."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def raise_limit() -> None:
    before = max_map_count()
    if before < MAPPINGS:
        set_max_map_count(RAISED + before)


def put_back() -> None:
    """What it was, unless somebody has set it meanwhile; what fails is only said."""
    before = max_map_count() - RAISED
    if LEAST <= before < MAPPINGS:
        try:
            set_max_map_count(before)
        except HostError as error:
            print(error, file=sys.stderr, flush=True)


@contextmanager
def turn() -> Iterator[None]:
    """One process of this machine at a time."""
    directory = os.open(MAX_MAP_COUNT.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


@contextmanager
def many_mappings() -> Iterator[None]:
    """Raises the kernel's limit of mappings per process, as long as anybody needs it.

    The last one puts it back, or the next one's last, after who was killed.
    """
    with MAX_MAP_COUNT.open() as held, guard.undisturbed() as disturbed:
        try:
            with turn():
                raise_limit()
                fcntl.flock(held, fcntl.LOCK_SH)
            with disturbed():
                yield
        finally:
            with turn():
                if is_alone(held):
                    put_back()
