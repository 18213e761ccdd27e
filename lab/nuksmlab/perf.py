# SPDX-License-Identifier: GPL-2.0-only
"""Accesses that a node's memory answered, as the processor's own counters say."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TypedDict

COUNTERS = Path("/sys/bus/event_source/devices")
# What programs do, and no kernel; virtual machines' (G), which perf leaves out
# unless asked, and the host's (H).
WHOSE = "uGH"

# By perf's names: of memory of the own node, and of others'.
Events = tuple[str, str]
KNOWN: Sequence[Events] = (
    # Intel: loads that retired. Since Skylake, Haswell, Sandy Bridge.
    *(
        (f"{group}.local_dram", f"{group}.remote_dram")
        for group in (
            "mem_load_l3_miss_retired",
            "mem_load_uops_l3_miss_retired",
            "mem_load_uops_llc_miss_retired",
        )
    ),
    # AMD: lines that came into the first-level cache. Since Zen 4, 3, 2.
    ("ls_any_fills_from_sys.dram_io_near", "ls_any_fills_from_sys.dram_io_far"),
    ("ls_any_fills_from_sys.mem_io_local", "ls_any_fills_from_sys.mem_io_remote"),
    (
        "ls_refills_from_sys.ls_mabresp_lcl_dram",
        "ls_refills_from_sys.ls_mabresp_rmt_dram",
    ),
)


class PerfError(Exception):
    """perf ended, or counted nothing."""


class Loads(TypedDict):
    """What a process's accesses found in memory, of its own node and of others."""

    local: int
    remote: int


def command(events: Events) -> list[str]:
    named = ",".join(f"{event}:{WHOSE}" for event in events)
    return ["perf", "stat", "-x,", "-e", named]


def read(said: str) -> Loads:
    """perf's lines: what was counted, its unit, the event."""
    lines = [line.split(",") for line in said.splitlines() if line.count(",") > 2]
    try:
        local, remote = (int(line[0]) for line in lines)
    except ValueError as error:
        raise PerfError(f"perf: {said}") from error
    return {"local": local, "remote": remote}


def is_counted(events: Events) -> bool:
    """Whether this processor has the events, and whoever asks may count them."""
    tried = [*command(events), "true"]
    done = subprocess.run(tried, stderr=subprocess.PIPE, text=True, check=False)
    try:
        read(done.stderr)
    except PerfError:
        return False
    return True


@cache
def find_events() -> Events | None:
    """Those that this machine counts; None without perf or without counters."""
    if not shutil.which("perf") or not list(COUNTERS.glob("cpu*")):
        return None
    return next(filter(is_counted, KNOWN), None)


@contextmanager
def counting(pid: int, events: Events) -> Iterator[Callable[[], Loads]]:
    """Counts for a process, with all its threads, until what it yields is called."""
    orders, control = os.pipe()
    answers, answer = os.pipe()
    perf = subprocess.Popen(
        [
            *command(events),
            *("-p", str(pid)),
            *("-D", "-1", "--control", f"fd:{orders},{answer}"),
        ],
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=(orders, answer),
    )

    def end() -> Loads:
        perf.send_signal(signal.SIGINT)
        return read(perf.communicate()[1])

    try:
        os.close(orders)
        os.close(answer)
        with suppress(BrokenPipeError):
            os.write(control, b"enable\n")
        if not os.read(answers, 16):
            raise PerfError(f"perf: {perf.communicate()[1]}")
        yield end
    finally:
        os.close(control)
        os.close(answers)
        if perf.poll() is None:
            perf.kill()
            perf.communicate()
