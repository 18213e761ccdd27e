# SPDX-License-Identifier: GPL-2.0-only
"""Two virtual machines, and looks at their pages: in the emulated machine.

Its argument is the kernel of the virtual machines. What `plan.json` says, into
`samples.jsonl`; less, if the emulated processor ends one of them.
"""

import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from nuksmlab import replicas, wait
from nuksmlab.bench import looks
from nuksmlab.bench.guest import OUTPUT
from nuksmlab.bench.looks import Run, Took
from nuksmlab.ksm import Ksm
from nuksmlab.virtual import VirtualMachine
from nuksmlab.workload import EndedError

# ksmd has nothing more to do, and takes its time.
IDLE = {"pages_to_scan": 1, "sleep_millisecs": 10_000}
NODES = (0, 1)


def hot_pages(machine: VirtualMachine) -> int:
    return machine.pages * looks.HOT_PERCENT // 100


def run_both(machines: list[VirtualMachine], operations: int) -> float:
    """Seconds, until the last one has done so many."""
    began = time.monotonic()
    for machine in machines:
        machine.begin(operations)
    for machine in machines:
        machine.end()
    return time.monotonic() - began


def set_up(ksm: Ksm, run: Run) -> None:
    """What is left of the one before goes first."""
    ksm.write("look_cpu_permille", looks.PERMILLE[run["config"]])
    ksm.write("replica_percent", looks.BUDGET_PERCENT[run["config"]])
    if not looks.BUDGET_PERCENT[run["config"]]:
        replicas.wait_for(ksm, 0)


def take(ksm: Ksm, machines: list[VirtualMachine], run: Run) -> Took:
    set_up(ksm, run)
    wanted = hot_pages(machines[0]) // 2 if looks.BUDGET_PERCENT[run["config"]] else 0

    def warmed() -> bool:
        """What is used for some time has replicas; who rests loses its timers."""
        run_both(machines, run["operations"] // 2)
        return replicas.count(ksm) >= wanted

    wait.until(warmed, lambda: f"{wanted} replicas, not {replicas.count(ksm)}")
    before = ksm.read("look_cpu_us")
    seconds = run_both(machines, run["operations"])
    return {
        "run": run,
        "seconds": seconds,
        "look_us": ksm.read("look_cpu_us") - before,
        "replicas": replicas.count(ksm),
    }


def measure(plan: list[Run]) -> None:
    ksm = Ksm()
    ksm.unmerge()
    with (OUTPUT / "samples.jsonl").open("w") as samples, ExitStack() as stack:
        machines = []
        for node in NODES:
            print(f"  starting virtual machine {node + 1}", flush=True)
            kib, kernel = plan[0]["kib"], Path(sys.argv[1])
            machine = VirtualMachine(looks.WORKLOAD, node, node, kib, kernel)
            machines.append(stack.enter_context(machine))
            machine.prefer(0, hot_pages(machine))
        ksm.merge(sum(machine.equal_pages for machine in machines))
        ksm.set_speed(IDLE)
        for number, run in enumerate(plan, 1):
            took = take(ksm, machines, run)
            samples.write(f"{json.dumps(took)}\n")
            samples.flush()
            print(
                f"{number:3}/{len(plan)}  {run['config']:15}  {took['seconds']:.2f} s, "
                f"{took['look_us'] / 1e3:.0f} ms of looks, {took['replicas']} replicas",
                flush=True,
            )
        ksm.unmerge()


def main() -> None:
    try:
        measure(json.loads((OUTPUT / "plan.json").read_text()))
    except EndedError as error:
        if not looks.was_reset(error):
            raise
        print(f"  {error}", flush=True)


if __name__ == "__main__":
    main()
