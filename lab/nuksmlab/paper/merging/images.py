# SPDX-License-Identifier: GPL-2.0-only
"""Guests' images, inside User-Mode Linux: what plan.json says, into observed.jsonl.

ksmd's CPU time is not known here: the host adds it.
"""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

from nuksmlab.bench.scanner import Scanner
from nuksmlab.paper.merging import plan
from nuksmlab.paper.merging.copies import carry_out
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


def found(observed: Images) -> str:
    saved = observed["steps"][-1]["passes"][-1]["after"]["pages_sharing"]
    return (
        f"{observed['run']['configuration']:4}  {saved} pages saved, "
        f"{observed['bad_pages']} bad pages"
    )


if __name__ == "__main__":
    carry_out(observe, found)
