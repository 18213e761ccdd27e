# SPDX-License-Identifier: GPL-2.0-only
"""The trials of plan.json, on the machine's own nodes, into observed.jsonl.

Its argument is the kernel for virtual machines.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from nuksmlab import database, guard, numa, perf, processes, program, wait
from nuksmlab.ksm import Ksm, process_stat
from nuksmlab.paper import use
from nuksmlab.paper.start import Fleet, Running
from nuksmlab.paper.trial import Learned, Observed, Phase, Trial
from nuksmlab.perf import Events
from nuksmlab.workload import Instance

OUTPUT = Path(os.environ["NUKSM_OUTPUT"])
# While instances start, ksmd runs, as it would on a host, but merges nothing yet.
# It is in the first one's memory when the second one comes, which for this
# reason it will always look at first: so it was in the paper.
CRAWL = {"pages_to_scan": 1, "sleep_millisecs": 200}
# One of so many pages is written to when all is measured.
WRITTEN_EVERY = 16
# So slow that it can be stopped half-way.
SLOW = {"pages_to_scan": 64, "sleep_millisecs": 5}


def configure(ksm: Ksm, trial: Trial) -> None:
    """Nothing is merged or tracked now: the index may change."""
    if trial["placement"] == "off":
        return
    ksm.write_text("placement", trial["placement"])
    ksm.write_text("index", trial["index"])
    ksm.write("kib_per_tree", trial["kib_per_tree"])
    if "use" in trial:
        use.configure(ksm, trial["use"])
    ksm.set_speed(CRAWL)
    ksm.start()


def wait_for_ksmd(instance: Running) -> None:
    wait.until(
        lambda: process_stat(instance.pid)["ksm_rmap_items"] > 0,
        lambda: f"ksmd in process {instance.pid}; is there anything else to merge?",
    )


def merge(ksm: Ksm, trial: Trial, instances: Sequence[Running]) -> Learned | None:
    learned = None
    if "busy" in trial:
        use.merge_busy(ksm, trial["busy"], instances)
        return None
    if "use" in trial:
        learned = use.merge(ksm, trial["use"], instances)
    else:
        ksm.merge(sum(instance.equal_pages for instance in instances))
    if trial["corrected"]:
        program.place_once(trial["corrected"])
        ksm.settle()
    # Merged pages stay; ksmd's own accesses are not part of what is measured.
    ksm.stop()
    return learned


def merge_part(ksm: Ksm, mappings: float) -> None:
    ksm.set_speed(SLOW)
    ksm.start()
    wait.until(
        lambda: ksm.merged() >= mappings,
        lambda: f"{mappings:.0f} merged mappings; counters are {ksm.counters()}",
        poll=0.02,
    )
    ksm.stop()


def run_together(
    instances: Sequence[Running], operations: int, events: Events | None
) -> list[Phase]:
    with ExitStack() as stack:
        ends = [
            stack.enter_context(perf.counting(instance.pid, events)) if events else None
            for instance in instances
        ]
        for instance in instances:
            instance.begin(operations)
        phases: list[Phase] = [{"answer": instance.end()} for instance in instances]
        for phase, end in zip(phases, ends, strict=True):
            if end:
                phase["loads"] = end()
    return phases


def run_all(
    instances: Sequence[Running], operations: int, events: Events | None
) -> list[Phase]:
    """At the same time, except those that share a node's only CPU."""
    phases: dict[int, Phase] = {}
    waiting = dict(enumerate(instances))
    while waiting:
        together = {one.node: number for number, one in reversed(waiting.items())}
        numbers = sorted(together.values())
        several = [waiting.pop(number) for number in numbers]
        done = run_together(several, operations, events)
        phases.update(zip(numbers, done, strict=True))
    return [phases[number] for number in sorted(phases)]


def warm(instances: Sequence[Running]) -> None:
    for instance in instances:
        instance.warm()


def measure(
    ksm: Ksm, trial: Trial, instances: Sequence[Running], free: int
) -> Observed:
    """`free` pages there were before anything was merged."""
    freed = numa.spare_pages() - free
    pages = [instance.pages_by_node() for instance in instances]
    counters = ksm.counters()
    if "busy" not in trial:
        warm(instances)
    phases = run_all(instances, trial["operations"], perf.find_events())
    return {
        "trial": trial,
        "pages_shared": counters["pages_shared"],
        "pages_sharing": counters["pages_sharing"],
        "pages_freed": freed,
        "instances": [
            {
                **place,
                "pages": instance.pages,
                "pages_by_node": {str(node): found[node] for node in sorted(found)},
                **phase,
            }
            for place, instance, found, phase in zip(
                trial["instances"], instances, pages, phases, strict=True
            )
        ],
    }


def spoilt(running: Sequence[Running]) -> int:
    """One writes to merged pages, and takes that back: how many instances suffer?"""
    instances = [one for one in running if isinstance(one, Instance)]
    before = [one.sum() for one in instances]
    instances[0].flip(WRITTEN_EVERY)
    written, *others = [one.sum() for one in instances]
    instances[0].flip(WRITTEN_EVERY)
    lost = written == before[0] or instances[0].sum() != before[0]
    return lost + sum(now != then for now, then in zip(others, before[1:], strict=True))


def huge_kib(instances: Sequence[Running]) -> int:
    return sum(processes.huge_kib(instance.pid) for instance in instances)


def carry_out(ksm: Ksm, fleet: Fleet, trial: Trial) -> Iterator[Observed]:
    ksm.unmerge()
    configure(ksm, trial)
    busy = trial.get("busy")
    with ExitStack() as stack:
        instances: list[Running] = []
        for number, place in enumerate(trial["instances"]):
            what = (trial["workload"], number, place["node"], trial["kib"])
            instance = (
                stack.enter_context(Instance(*what, huge=True))
                if busy and busy["huge"]
                else fleet.get(stack, *what)
            )
            instances.append(instance)
            instance.renice(place["nice"])
            if number == 0 and trial["placement"] != "off":
                wait_for_ksmd(instance)
        # All are at work on a host: none may be colder than the others by chance.
        if not busy:
            warm(instances)
        before = huge_kib(instances)
        free = numa.spare_pages()
        mappings = sum(instance.equal_pages for instance in instances)
        for stage in range(1, trial["stages"]):
            yield measure(ksm, trial, instances, free)
            merge_part(ksm, mappings * stage / (trial["stages"] - 1) - 1)
        learned = None
        if trial["placement"] != "off":
            learned = merge(ksm, trial, instances)
        observed = measure(ksm, trial, instances, free)
        if learned:
            observed["learned"] = learned
        if busy:
            observed["huge_kib"] = [before, huge_kib(instances)]
        # A database writes to its memory whatever it is asked.
        if not trial["workload"].endswith(database.NAME):
            observed["spoilt"] = spoilt(instances)
        yield observed


def progress(number: int, total: int, observed: Observed, took: float) -> str:
    trial = observed["trial"]
    nodes = [instance["pages_by_node"] for instance in observed["instances"]]
    return (
        f"{OUTPUT.name}: {number}/{total}  {trial['configuration']:18}  "
        f"{observed['pages_sharing']:6} pages saved, pages by node {nodes}, "
        f"{took:.0f} s"
    )


def main() -> None:
    guard.unwind_when_terminated()
    ksm = Ksm()
    trials: list[Trial] = json.loads((OUTPUT / "plan.json").read_text())
    with (OUTPUT / "observed.jsonl").open("w") as lines, ExitStack() as stack:
        stack.callback(ksm.unmerge)
        fleet = Fleet(stack, Path(sys.argv[1]))
        for number, trial in enumerate(trials, 1):
            began = time.monotonic()
            for observed in carry_out(ksm, fleet, trial):
                lines.write(f"{json.dumps(observed)}\n")
                lines.flush()
                took = time.monotonic() - began
                print(progress(number, len(trials), observed, took), flush=True)


if __name__ == "__main__":
    main()
