# SPDX-License-Identifier: GPL-2.0-only
"""The runs of plan.json, into observed.jsonl; the emulator counts what kernels do."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nuksmlab import numa, paths, wait
from nuksmlab.ksm import Ksm
from nuksmlab.paper.scanning.plan import EQUAL_PERCENT
from nuksmlab.paper.scanning.records import Observed, Run
from nuksmlab.processes import pid_of
from nuksmlab.tenant import Spec, Tenant

OUTPUT = Path(os.environ["NUKSM_OUTPUT"])
KSMDS_NODE = 0
# Two to see that a page does not change, one to find its equal, one to be sure.
MOST_SCANS = 5
# One takes some milliseconds, of which a few interrupts are a tenth on a busy host.
RESTING_SCANS = 10


@contextmanager
def counting() -> Iterator[None]:
    """What the kernel does meanwhile on ksmd's node, between marks of tenant 0."""
    marked = [str(paths.BOUND), str(KSMDS_NODE), "0", "cat"]
    with subprocess.Popen(
        marked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"\n")
        assert process.stdout.read(1), "it has begun"
        yield
        process.stdin.close()
    assert process.returncode == 0


def scanned(ksm: Ksm, scans: int) -> int:
    """Scans everything so many times; tells how many pages that were."""
    before = ksm.read("pages_scanned")
    for _ in range(scans):
        ksm.scan_once()
    ksm.rest()
    return ksm.read("pages_scanned") - before


def merge(ksm: Ksm, mappings: int) -> tuple[int, int]:
    """Until all is merged. How many pages were scanned for that, how often all."""
    pages = 0
    for scan in range(1, MOST_SCANS + 1):
        pages += scanned(ksm, 1)
        if ksm.merged() >= mappings:
            return pages, scan
    raise wait.DeadlineError(f"{mappings} merged mappings after {MOST_SCANS} scans")


def observe(ksm: Ksm, run: Run) -> Observed:
    ksm.unmerge()
    ksm.write_text("placement", run["placement"])
    ksm.write_text("index", run["index"])
    ksm.write("kib_per_tree", run["kib_per_tree"])
    with ExitStack() as stack:
        tenants = []
        for node, nice in enumerate(run["nices"]):
            spec = Spec(
                *(f"vm-{node}", node, run["mib"]),
                equal=EQUAL_PERCENT,
                private=100 - EQUAL_PERCENT,
            )
            tenants.append(tenant := stack.enter_context(Tenant(spec)))
            tenant.renice(nice)
        with counting():
            merging, scans = merge(ksm, sum(one.equal_pages for one in tenants))
        with counting():
            resting = scanned(ksm, RESTING_SCANS)
        nodes = tenants[0].equal_pages_by_node()
        merged = ksm.merged()
    return {
        "run": run,
        "merging": merging,
        "scans": scans,
        "resting": resting,
        "merged": merged,
        "pages_by_node": {str(node): nodes[node] for node in sorted(nodes)},
    }


def main() -> None:
    ksm = Ksm()
    os.sched_setaffinity(0, numa.cpus(1 - KSMDS_NODE))
    for thread in ("ksmd", "nuksmd"):
        os.sched_setaffinity(pid_of(thread), numa.cpus(KSMDS_NODE))
    runs: list[Run] = json.loads((OUTPUT / "plan.json").read_text())
    with (OUTPUT / "observed.jsonl").open("w") as lines:
        for number, run in enumerate(runs, 1):
            observed = observe(ksm, run)
            lines.write(f"{json.dumps(observed)}\n")
            lines.flush()
            print(
                f"{OUTPUT.name}: {number}/{len(runs)}  {run['configuration']:10}  "
                f"{observed['merged']} mappings merged after {observed['scans']} "
                f"scans, pages by node {observed['pages_by_node']}",
                flush=True,
            )
    ksm.unmerge()


if __name__ == "__main__":
    main()
