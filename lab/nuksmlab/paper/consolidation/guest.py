# SPDX-License-Identifier: GPL-2.0-only
"""The scenarios of plan.json, inside the emulated machine, into observed.jsonl.

Its arguments: the guests' initramfs, our kernel, and a stock one if a guest has it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from nuksmlab import paths
from nuksmlab.ksm import Ksm
from nuksmlab.paper.consolidation.plan import OURS, STOCK
from nuksmlab.paper.consolidation.records import Observed, Phase, Plan, Scenario
from nuksmlab.paper.pressure.guest import cpu_seconds
from nuksmlab.virtual import Guest, in_time
from nuksmlab.workload import WorkloadError, read_answer

OUTPUT = Path(os.environ["NUKSM_OUTPUT"])
NODES = 2
LOAD_SECONDS = 1.0


class Running:
    """A guest from its start on; its service's first answer says that it is up."""

    def __init__(self, number: int, guest: Guest) -> None:
        self.name = f"guest {number}"
        # In memory: each character that is written to the host costs milliseconds.
        self.messages = Path(f"/tmp/guest-{number}.txt")
        self.process = subprocess.Popen(
            [*guest.command(), "-serial", f"file:{self.messages}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self) -> dict[str, int]:
        with in_time(self.process):
            return read_answer(self.process, self.name)

    def ask(self, what: str) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return self.answer()[what]

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
        shutil.copy(self.messages, OUTPUT)


def keep_busy(guests: Sequence[Running]) -> None:
    for guest in guests:
        if guest.ask("load") != 0:
            raise WorkloadError(f"{guest.name}: dd failed")


def record(
    name: str, plan: Plan, guests: Sequence[Running], over: Callable[[], bool]
) -> Phase:
    """From now until it is over; guests have their load meanwhile."""
    command = [str(paths.NUKSM_RELEASE), "record", "--counters"]
    command += ["--output", str(OUTPUT / name)]
    began, cpu = time.monotonic(), [cpu_seconds(one.process.pid) for one in guests]
    with subprocess.Popen(
        [*command, "--interval", str(plan["interval_seconds"])]
    ) as recorder:
        try:
            while not over():
                time.sleep(LOAD_SECONDS)
                keep_busy(guests)
        finally:
            recorder.send_signal(signal.SIGINT)
    if recorder.returncode != 0:
        raise RuntimeError(f"nuksm record ended with {recorder.returncode}")
    used = [cpu_seconds(one.process.pid) for one in guests]
    return {
        "recording": name,
        "guests_cpu_seconds": sum(used) - sum(cpu),
        "seconds": time.monotonic() - began,
    }


def observe(
    ksm: Ksm, plan: Plan, scenario: Scenario, guests: Sequence[Running]
) -> Observed:
    name = scenario["name"].replace(" ", "-")
    ksm.unmerge()
    keep_busy(guests)
    end = time.monotonic() + plan["without_seconds"]
    without = record(
        f"{name}-without.jsonl", plan, guests, lambda: time.monotonic() > end
    )
    goal = ksm.read("full_scans") + plan["scans"]
    ksm.set_speed(plan["speed"])
    ksm.start()
    merging = record(
        f"{name}-merging.jsonl", plan, guests, lambda: ksm.read("full_scans") >= goal
    )
    checksums = [guest.ask("checksum") for guest in guests]
    ksm.unmerge()
    return {
        "scenario": scenario,
        "without": without,
        "merging": merging,
        "checksums": checksums,
    }


def main() -> None:
    archive, *given = map(Path, sys.argv[1:])
    kernels = dict(zip((OURS, STOCK), given, strict=False))
    plan: Plan = json.loads((OUTPUT / "plan.json").read_text())
    # Else CPUs keep up to an eighth of what is free, which then counts as used.
    Path("/proc/sys/vm/percpu_pagelist_high_fraction").write_text("1000")
    ksm = Ksm()
    guests: list[Running] = []
    with (OUTPUT / "observed.jsonl").open("w") as lines, ExitStack() as stack:
        for scenario in plan["scenarios"]:
            began = time.monotonic()
            for number in range(len(guests), len(scenario["kernels"])):
                guest = Guest(
                    node=number % NODES,
                    mib=plan["guest_mib"],
                    kernel=kernels[scenario["kernels"][number]],
                    initramfs=archive,
                    append=f"console=ttyS1 quiet LOAD_MIB={plan['load_mib']}",
                )
                guests.append(running := Running(number, guest))
                stack.callback(running.end)
                running.answer()
                took = time.monotonic() - began
                print(f"  guest {number} is up, {took:.0f} s", flush=True)
            observed = observe(ksm, plan, scenario, guests)
            lines.write(f"{json.dumps(observed)}\n")
            lines.flush()
            took = time.monotonic() - began
            print(f"  {scenario['name']}: recorded, {took:.0f} s", flush=True)


if __name__ == "__main__":
    main()
