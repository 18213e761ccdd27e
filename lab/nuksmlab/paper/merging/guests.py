# SPDX-License-Identifier: GPL-2.0-only
"""Virtual machines, inside an emulated machine: plan.json into observed.jsonl.

Its argument is the kernel of the virtual machines. Two of them stay for all runs;
the third one has to come anew in each, when the others' pages are merged.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from nuksmlab.bench.meter import cpu_clock
from nuksmlab.bench.scanner import Scanner
from nuksmlab.ksm import Ksm
from nuksmlab.paper.merging import plan
from nuksmlab.paper.merging.copies import set_index
from nuksmlab.paper.merging.records import Guests, Run, Step, merges
from nuksmlab.processes import pid_of
from nuksmlab.virtual import VirtualMachine

OUTPUT = Path(os.environ["NUKSM_OUTPUT"])

# With a number and a node.
Start = Callable[[int, int], VirtualMachine]


def merge(scanner: Scanner, ksmd: int, added: str) -> Step:
    """Until a pass merges next to nothing."""
    step: Step = {"added": added, "passes": [], "cpu_seconds": []}
    while len(step["passes"]) < plan.MOST_PASSES:
        before = time.clock_gettime(cpu_clock(ksmd))
        step["passes"].append(scanner.scan())
        step["cpu_seconds"].append(time.clock_gettime(cpu_clock(ksmd)) - before)
        if len(step["passes"]) >= plan.PASSES and not merges(step, -1):
            break
    return step


def observe(
    scanner: Scanner, run: Run, two: list[VirtualMachine], start: Start
) -> Guests:
    ksmd = pid_of("ksmd")
    steps = [merge(scanner, ksmd, "1 and 2")]
    (node,) = plan.GUESTS_AT[1]
    with start(len(two), node) as third:
        steps.append(merge(scanner, ksmd, "3"))
        answers = [each.run(plan.OPERATIONS)["checksum"] for each in (*two, third)]
    return {"run": run, "steps": steps, "answers": answers}


def main() -> None:
    ksm = Ksm()
    default_kib = ksm.read("kib_per_tree")
    # A page's way to another node is no part of what an index costs.
    ksm.write_text("placement", "first")
    runs: list[Run] = json.loads((OUTPUT / "plan.json").read_text())

    def start(number: int, node: int) -> VirtualMachine:
        kib = runs[0]["mib"] * 1024
        print(f"  starting virtual machine {number + 1}", flush=True)
        return VirtualMachine(plan.WORKLOAD, number, node, kib, Path(sys.argv[1]))

    with (OUTPUT / "observed.jsonl").open("w") as lines, ExitStack() as stack:
        two = [
            stack.enter_context(start(number, node))
            for number, node in enumerate(plan.GUESTS_AT[0])
        ]
        scanner = Scanner(ksm)
        for number, run in enumerate(runs, 1):
            ksm.unmerge()
            set_index(ksm, run, default_kib)
            began = time.monotonic()
            observed = observe(scanner, run, two, start)
            lines.write(f"{json.dumps(observed)}\n")
            lines.flush()
            print(
                f"  {number}/{len(runs)}  {run['case']}  {run['configuration']:4}  "
                f"{ksm.read('pages_sharing')} pages saved, "
                f"{time.monotonic() - began:.0f} s",
                flush=True,
            )
        ksm.unmerge()


if __name__ == "__main__":
    main()
