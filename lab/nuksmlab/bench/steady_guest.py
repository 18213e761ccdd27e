# SPDX-License-Identifier: GPL-2.0-only
"""Scans of what was scanned before, and of tenants that come: inside the guest.

What `plan.json` says, into `samples.jsonl`.
"""

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from nuksmlab import wait
from nuksmlab.bench import plan, settings, steady
from nuksmlab.bench.guest import OUTPUT, BenchError, start, verify
from nuksmlab.bench.meter import wait_until_sampled
from nuksmlab.bench.records import Scan
from nuksmlab.bench.scanner import Scanner
from nuksmlab.bench.steady import Run
from nuksmlab.ksm import Ksm, process_stat
from nuksmlab.tenant import Tenant

Sample = dict[str, Any]


def new_samples(scanner: Scanner, run: Run) -> Iterator[Sample]:
    """Scans of what ksmd has not seen: the first looks, the second merges."""
    shares = plan.WORKLOADS[run["workload"]]
    with ExitStack() as stack:
        tenants = [
            start(stack, f"copy-{copy}", run["mib"], shares)
            for copy in range(steady.COPIES)
        ]
        scans = [scanner.scan()]
        for tenant in tenants:
            tenant.command("change")
        scans.append(scanner.scan())
        yield {"run": run, "scans": scans}
        verify(tenants)


def steady_samples(scanner: Scanner, run: Run) -> Iterator[Sample]:
    """Scans until nothing new is found, then others with pages used between them."""
    seeds = itertools.count(run["repetition"] * 1000)
    shares = steady.WORKLOADS[run["workload"]]
    with ExitStack() as stack:
        tenants = [
            start(stack, f"copy-{copy}", run["mib"], shares)
            for copy in range(steady.COPIES)
        ]
        for _ in range(steady.SETTLING_SCANS):
            scanner.scan()
        for touch, percent in itertools.product(steady.TOUCHES, steady.PERCENTS):
            scans, touched = [], 0
            for _ in range(steady.SCANS):
                seed = next(seeds)
                for tenant in tenants:
                    said = tenant.command(f"use {touch} {percent} {seed}")
                    touched += said["pages"]
                scans.append(scanner.scan())
            yield {
                "run": run,
                "touch": touch,
                "touched_percent": percent,
                "touched_pages": touched,
                "scans": scans,
            }
        verify(tenants)


def merged_pages(tenant: Tenant) -> int:
    return process_stat(tenant.pid)["ksm_merging_pages"]


def arrival_samples(scanner: Scanner, run: Run) -> Iterator[Sample]:
    """One tenant that is known, and others like it, each until it is merged."""
    shares = steady.WORKLOADS[run["workload"]]
    with ExitStack() as stack:
        tenants = [start(stack, "tenant-1", run["mib"], shares)]
        for _ in range(steady.SETTLING_SCANS):
            scanner.scan()
        for number in range(2, steady.TENANTS + 1):
            tenant = start(stack, f"tenant-{number}", run["mib"], shares)
            tenants.append(tenant)
            scans: list[Scan] = []
            while merged_pages(tenant) < tenant.equal_pages:
                if len(scans) == steady.MOST_SCANS:
                    raise BenchError(f"{run}: {merged_pages(tenant)} pages merged only")
                scans.append(scanner.scan())
            yield {"run": run, "tenant": number, "scans": scans}
        verify(tenants)


def wait_until_merged(tenant: Tenant) -> None:
    wait.until(
        lambda: merged_pages(tenant) == tenant.equal_pages,
        lambda: f"{tenant.spec.name}, {merged_pages(tenant)} of whose pages are merged",
        poll=0.01,
    )


def paced_samples(scanner: Scanner, run: Run) -> Iterator[Sample]:
    """The same while ksmd works and rests in turn, as it does on a host.

    Each starts when a scan begins.
    """
    ksm, shares = scanner.ksm, steady.WORKLOADS[run["workload"]]
    with ExitStack() as stack:
        tenants = [start(stack, "tenant-1", run["mib"], shares)]
        for _ in range(steady.SETTLING_SCANS):
            scanner.scan()
        ksm.set_speed(steady.PACE)
        ksm.start()
        for number in range(2, steady.TENANTS + 1):
            ksm.wait_scans(1)
            began, scans = time.time(), ksm.read("full_scans")
            tenant = start(stack, f"tenant-{number}", run["mib"], shares)
            tenants.append(tenant)
            wait_until_merged(tenant)
            yield {
                "run": run,
                "tenant": number,
                "began": began,
                "ended": time.time(),
                "full_scans": ksm.read("full_scans") - scans,
            }
        ksm.stop()
        verify(tenants)


def main() -> None:
    runs: list[Run] = json.loads((OUTPUT / "plan.json").read_text())
    samples_of = {
        "new": new_samples,
        "steady": steady_samples,
        "arrival": arrival_samples,
        "paced": paced_samples,
    }
    ksm = Ksm()
    ksm.unmerge()
    scanner = Scanner(ksm)
    with (OUTPUT / "samples.jsonl").open("w") as samples:
        default_kib = ksm.read("kib_per_tree")
        for number, run in enumerate(runs, 1):
            settings.apply(ksm, settings.SETTINGS[run["config"]], default_kib)
            print(f"{number:3}/{len(runs)}  {steady.name(run)}", flush=True)
            for sample in samples_of[run["experiment"]](scanner, run):
                samples.write(f"{json.dumps(sample)}\n")
                samples.flush()
    wait_until_sampled(OUTPUT)


if __name__ == "__main__":
    main()
