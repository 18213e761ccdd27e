# SPDX-License-Identifier: GPL-2.0-only
"""The runs, inside User-Mode Linux: what `plan.json` says, into `samples.jsonl`."""

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from nuksmlab.bench import plan, records
from nuksmlab.bench.meter import wait_until_sampled
from nuksmlab.bench.records import Run, Sample
from nuksmlab.bench.scanner import Scanner
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import ANYWHERE, Spec, Tenant

OUTPUT = Path(os.environ["NUKSM_OUTPUT"])


class BenchError(Exception):
    """A run that must not count."""


def start(stack: ExitStack, name: str, mib: int, shares: Mapping[str, int]) -> Tenant:
    """Of what `shares` do not say, nothing is equal; ends with the stack."""
    return stack.enter_context(
        Tenant(Spec(name, ANYWHERE, mib, madvised=True, **{"equal": 0, **shares}))
    )


def set_index(ksm: Ksm, run: Run, default_kib: int) -> tuple[int, int]:
    """KiB per tree, and the number of trees."""
    kib = default_kib if run["kib_per_tree"] is None else run["kib_per_tree"]
    ksm.write_text("index", run["index"])
    ksm.write("kib_per_tree", kib)
    return kib, ksm.read("trees")


def verify(tenants: Iterable[Tenant]) -> None:
    for tenant in tenants:
        if bad := tenant.bad_pages():
            raise BenchError(f"{bad} bad pages in {tenant.spec.name}: {tenant.spec}")


def measure(scanner: Scanner, run: Run, default_kib: int | None) -> Sample:
    scanner.ksm.unmerge()
    kib, trees = None, 1
    if default_kib is not None:
        kib, trees = set_index(scanner.ksm, run, default_kib)
    with ExitStack() as stack:
        shares = plan.WORKLOADS[run["workload"]]
        tenants = [
            start(stack, f"copy-{copy}", run["mib"], shares)
            for copy in range(records.COPIES)
        ]
        scans = [scanner.scan()]
        for tenant in tenants:
            tenant.command("change")
        scans.append(scanner.scan())
        verify(tenants)
    return {"run": run, "kib_per_tree": kib, "trees": trees, "scans": scans}


def progress(sample: Sample) -> str:
    run, merging = sample["run"], sample["scans"][-1]
    return (
        f"{run['workload']:6}  {run['mib']:4} MiB  {run['index']:8}  "
        f"{sample['trees']:6} trees  {records.merged_mib(merging):5.0f} MiB merged  "
        f"in {merging['ended'] - merging['began']:6.2f} s"
    )


def main() -> None:
    ksm = Ksm()
    ksm.unmerge()
    scanner = Scanner(ksm)
    patched = (ksm.root / "kib_per_tree").exists()
    default_kib = ksm.read("kib_per_tree") if patched else None
    runs: list[Run] = json.loads((OUTPUT / "plan.json").read_text())
    with (OUTPUT / "samples.jsonl").open("w") as samples:
        for number, run in enumerate(runs, 1):
            sample = measure(scanner, run, default_kib)
            samples.write(f"{json.dumps(sample)}\n")
            samples.flush()
            print(f"{number:3}/{len(runs)}  {progress(sample)}", flush=True)
    wait_until_sampled(OUTPUT)


if __name__ == "__main__":
    main()
