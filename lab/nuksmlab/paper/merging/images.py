# SPDX-License-Identifier: GPL-2.0-only
"""Guests' images, inside User-Mode Linux: what plan.json says, into observed.jsonl.

ksmd's CPU time is not known here: the host adds it.
"""

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path

from nuksmlab.bench.meter import wait_until_sampled
from nuksmlab.bench.scanner import Scanner
from nuksmlab.ksm import Ksm
from nuksmlab.paper.merging import plan
from nuksmlab.paper.merging.copies import set_index
from nuksmlab.paper.merging.records import Images, Run, Step
from nuksmlab.tenant import Controlled

OUTPUT = Path(os.environ["NUKSM_OUTPUT"])
HOLD = (sys.executable, "-m", "nuksmlab.paper.merging.image")


def observe(scanner: Scanner, run: Run) -> Images:
    steps: list[Step] = []
    with ExitStack() as stack:
        holders: list[Controlled] = []
        for name in plan.image_names(run["guests"]):
            holder = Controlled(name, [*HOLD, str(OUTPUT / name)])
            holders.append(stack.enter_context(holder))
            passes = [scanner.scan() for _ in range(plan.IMAGE_PASSES)]
            steps.append({"added": name, "passes": passes, "cpu_seconds": []})
        bad = sum(holder.command("verify")["bad"] for holder in holders)
    return {"run": run, "steps": steps, "bad_pages": bad}


def main() -> None:
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
            saved = observed["steps"][-1]["passes"][-1]["after"]["pages_sharing"]
            print(
                f"  {number}/{len(runs)}  {run['configuration']:14}  {saved} pages "
                f"saved, {observed['bad_pages']} bad pages",
                flush=True,
            )
    wait_until_sampled(OUTPUT)


if __name__ == "__main__":
    main()
