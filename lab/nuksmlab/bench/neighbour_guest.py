# SPDX-License-Identifier: GPL-2.0-only
"""Scans at a fixed pace of what was scanned before: inside the guest.

What `plan.json` says, into `samples.jsonl`.
"""

import itertools
import json
import time
from contextlib import ExitStack
from typing import Any

from nuksmlab.bench import neighbour, settings, steady
from nuksmlab.bench.guest import OUTPUT, start, verify
from nuksmlab.bench.meter import wait_until_sampled
from nuksmlab.bench.neighbour import Run
from nuksmlab.bench.records import Scan
from nuksmlab.bench.scanner import Scanner
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import Tenant


def periods(scanner: Scanner, run: Run, tenants: list[Tenant]) -> list[Scan]:
    """In each, pages are written, and scanned unless ksmd is off."""
    seeds = itertools.count(run["repetition"] * 1000)
    due = time.monotonic()
    scans = []
    for _ in range(neighbour.SCANS):
        seed = next(seeds)
        for tenant in tenants:
            tenant.command(f"use write {neighbour.TOUCHED_PERCENT} {seed}")
        if run["config"] != neighbour.OFF:
            scans.append(scanner.scan())
        due += neighbour.PERIOD_SECONDS
        time.sleep(max(0.0, due - time.monotonic()))
    return scans


def sample(scanner: Scanner, run: Run) -> dict[str, Any]:
    """Scans until nothing new is found, then as many as are measured."""
    shares = steady.WORKLOADS[neighbour.WORKLOAD]
    with ExitStack() as stack:
        tenants = [
            start(stack, f"copy-{copy}", run["mib"], shares)
            for copy in range(neighbour.COPIES)
        ]
        for _ in range(steady.SETTLING_SCANS):
            scanner.scan()
        began = time.time()
        scans = periods(scanner, run, tenants)
        ended = time.time()
        verify(tenants)
        merged = scanner.ksm.read("pages_sharing")
    return {
        "run": run,
        "began": began,
        "ended": ended,
        "scans": scans,
        "merged_pages": merged,
    }


def main() -> None:
    plan: list[Run] = json.loads((OUTPUT / "plan.json").read_text())
    ksm = Ksm()
    ksm.unmerge()
    scanner = Scanner(ksm)
    default_kib = ksm.read("kib_per_tree")
    with (OUTPUT / "samples.jsonl").open("w") as samples:
        for number, run in enumerate(plan, 1):
            config = "ours" if run["config"] == neighbour.OFF else run["config"]
            settings.apply(ksm, settings.SETTINGS[config], default_kib)
            print(f"{number:3}/{len(plan)}  {neighbour.name(run)}", flush=True)
            samples.write(f"{json.dumps(sample(scanner, run))}\n")
            samples.flush()
    wait_until_sampled(OUTPUT)


if __name__ == "__main__":
    main()
