# SPDX-License-Identifier: GPL-2.0-only
"""Copies, inside User-Mode Linux: what plan.json says, into observed.jsonl.

ksmd's CPU time is not known here: the host adds it.
"""

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from nuksmlab.bench import plan as bench
from nuksmlab.bench.meter import wait_until_sampled
from nuksmlab.bench.scanner import Scanner
from nuksmlab.ksm import Ksm
from nuksmlab.paper.merging import plan
from nuksmlab.paper.merging.records import Copies, Observed, Run, Step
from nuksmlab.tenant import ANYWHERE, Spec, Tenant

OUTPUT = Path(os.environ["NUKSM_OUTPUT"])
READS = 20
Kind = TypeVar("Kind", bound=Observed)


def set_index(ksm: Ksm, run: Run, default_kib: int) -> None:
    kib = default_kib if run["kib_per_tree"] is None else run["kib_per_tree"]
    ksm.write_text("index", run["index"])
    ksm.write("kib_per_tree", kib)


def spec(run: Run, copy: int) -> Spec:
    shares = bench.WORKLOADS[run["case"]]
    return Spec(f"copy-{copy}", ANYWHERE, run["mib"], equal=0, madvised=True, **shares)


def read_times(tenant: Tenant) -> list[int]:
    """After a first time: what was just merged is mapped again by a fault."""
    tenant.command("touch")
    return [tenant.command("touch")["nanoseconds"] for _ in range(READS)]


def observe(scanner: Scanner, run: Run) -> Copies:
    steps: list[Step] = []
    times: list[list[int]] = []
    with ExitStack() as stack:
        tenants: list[Tenant] = []
        for copy in range(1, plan.COPIES + 1):
            tenants.append(stack.enter_context(Tenant(spec(run, copy))))
            if copy == 1:
                times.append(read_times(tenants[0]))
            passes = [scanner.scan() for _ in range(plan.PASSES)]
            steps.append({"added": str(copy), "passes": passes, "cpu_seconds": []})
            if copy == plan.READ_COPIES:
                times.append(read_times(tenants[0]))
        bad = sum(tenant.bad_pages() for tenant in tenants)
    before, after = times
    return {
        "run": run,
        "steps": steps,
        "read_before": before,
        "read_after": after,
        "bad_pages": bad,
    }


def found(observed: Copies) -> str:
    run = observed["run"]
    took = sum(
        each["ended"] - each["began"]
        for step in observed["steps"]
        for each in step["passes"]
    )
    return (
        f"{run['case']:5}  {run['configuration']:4}  {plan.COPIES} copies of "
        f"{run['mib']} MiB: {took:.1f} s of scanning, {observed['bad_pages']} bad pages"
    )


def carry_out(
    observe: Callable[[Scanner, Run], Kind], say: Callable[[Kind], str]
) -> None:
    """All runs, each with its index, while the host counts ksmd's CPU time."""
    ksm = Ksm()
    scanner = Scanner(ksm)
    default_kib = ksm.read("kib_per_tree")
    runs: list[Run] = json.loads((OUTPUT / "plan.json").read_text())
    with (OUTPUT / "observed.jsonl").open("w") as lines:
        for number, run in enumerate(runs, 1):
            ksm.unmerge()
            set_index(ksm, run, default_kib)
            observed = observe(scanner, run)
            lines.write(f"{json.dumps(observed)}\n")
            lines.flush()
            print(f"  {number}/{len(runs)}  {say(observed)}", flush=True)
    wait_until_sampled(OUTPUT)


if __name__ == "__main__":
    carry_out(observe, found)
