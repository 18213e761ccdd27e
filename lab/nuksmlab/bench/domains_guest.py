# SPDX-License-Identifier: GPL-2.0-only
"""Scans of tenants in domains: in the guest.

What `plan.json` says, into `samples.jsonl`.
"""

import json
from contextlib import ExitStack
from typing import Any

from nuksmlab import stress
from nuksmlab.bench import domains
from nuksmlab.bench.domains import Run
from nuksmlab.bench.guest import OUTPUT, verify
from nuksmlab.bench.meter import wait_until_sampled
from nuksmlab.bench.scanner import Scanner
from nuksmlab.domains import Group, group
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import ANYWHERE, Spec, Tenant

Sample = dict[str, Any]


def start_pair(stack: ExitStack, cgroup: Group, number: int, mib: int) -> list[Tenant]:
    """Equal to each other, as their seeds are."""
    spec = Spec(
        f"pair-{number}",
        ANYWHERE,
        mib,
        equal=domains.EQUAL_PERCENT,
        private=100 - domains.EQUAL_PERCENT,
        seed=number + 1,
    )
    pair = [stack.enter_context(Tenant(spec)) for _ in "12"]
    for tenant in pair:
        cgroup.take(tenant.pid)
    return pair


def cost(scanner: Scanner, run: Run) -> Sample:
    with ExitStack() as stack:
        tenants: list[Tenant] = []
        for number in range(domains.PAIRS):
            cgroup = stack.enter_context(group(f"pair-{number}"))
            cgroup.give(number if run["config"] == domains.EACH else domains.PAIRS)
            tenants += start_pair(stack, cgroup, number, run["mib"])
        new = [scanner.scan(), scanner.scan()]
        for _ in range(domains.SETTLING_SCANS):
            scanner.scan()
        steady = []
        for seed in range(domains.SCANS):
            for tenant in tenants:
                tenant.command(f"use write {domains.TOUCHED_PERCENT} {seed}")
            steady.append(scanner.scan())
        for _ in range(domains.SETTLING_SCANS):
            scanner.scan()
        saved = scanner.ksm.read("pages_sharing")
        verify(tenants)
        return {"run": run, "new": new, "steady": steady, "saved_pages": saved}


def main() -> None:
    plan: list[Run] = json.loads((OUTPUT / "plan.json").read_text())
    stress.account_memory()
    ksm = Ksm()
    ksm.unmerge()
    scanner = Scanner(ksm)
    with (OUTPUT / "samples.jsonl").open("w") as samples:
        for number, run in enumerate(plan, 1):
            ksm.unmerge()
            print(f"{number:3}/{len(plan)}  {domains.name(run)}", flush=True)
            sample = cost(scanner, run)
            samples.write(f"{json.dumps(sample)}\n")
            samples.flush()
    wait_until_sampled(OUTPUT)


if __name__ == "__main__":
    main()
