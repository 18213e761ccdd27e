# SPDX-License-Identifier: GPL-2.0-only
"""Results of trials as they would be with pages at made-up places."""

from collections.abc import Sequence

from nuksmlab.counter import Counts
from nuksmlab.paper import experiments, model
from nuksmlab.paper.extent import QUICK, Extent, Part
from nuksmlab.paper.section import Check, Section
from nuksmlab.paper.trial import Result, ResultInstance, Trial

HARDWARE = model.read_hardware(model.PAPERS_MACHINE)
PAGES = 10000
MISSES = 100_000


def counts(node: int, local_share: float, nodes: int) -> Counts:
    local = round(MISSES * local_share)
    by_node = [0] * nodes
    by_node[node], by_node[node - 1] = local, MISSES - local
    return {
        "tenant": 0,
        "node": node,
        "instructions": 1_000_000,
        "loads": 300_000,
        "stores": 1000,
        "l1_misses": 150_000,
        "local": local,
        "remote": MISSES - local,
        "elsewhere": 0,
        "by_node": by_node,
    }


def shares(trial: Trial) -> list[float]:
    """Of the pages, by node, that the trial's placement is to lead to."""
    nodes = sorted({place["node"] for place in trial["instances"]})
    rule = trial["corrected"] or trial["placement"]
    if rule == "first":
        return [float(node == 0) for node in nodes]
    weights = [0.0] * len(nodes)
    for place in trial["instances"]:
        weights[place["node"]] += 1 / (place["nice"] + 21) if rule == "priority" else 1
    return [weight / sum(weights) for weight in weights]


def observe(trial: Trial, merged: float = 1.0) -> Result:
    off = trial["placement"] == "off"
    by_node = shares(trial)
    count = len(trial["instances"])
    kept = round(PAGES * merged)
    instances: list[ResultInstance] = []
    for place in trial["instances"]:
        node = place["node"]
        local = 1.0 if off else merged * by_node[node] + 1 - merged
        instances.append(
            {
                "node": node,
                "nice": place["nice"],
                "pages": PAGES,
                "pages_by_node": {str(node): round(PAGES * local)}
                | {str(node + 1): PAGES - round(PAGES * local)},
                "answer": {
                    "operations": 1,
                    "operation": "lookup",
                    "checksum": "abc",
                    "seconds": 1.0,
                },
                "counts": counts(node, local, len(by_node)),
            }
        )
    return {
        "trial": trial,
        "pages_shared": 0 if off else kept,
        "pages_sharing": 0 if off else kept * (count - 1),
        "pages_freed": 0 if off else kept * (count - 1) - 20,
        "instances": instances,
        "learned": None,
        "huge_kib": [4 * PAGES * count, 0],
        "spoilt": 0,
        "expected": "abc",
        "raw": "raw/made-up/observed.jsonl#1",
    }


def observe_all(parts: Sequence[Part], breaking: str = "") -> list[Result]:
    """With `breaking`, that configuration's pages all stay where KSM keeps them."""
    results = []
    for trial in (trial for part in parts for trial in part.trials):
        kept = trial["configuration"], trial["placement"]
        if trial["configuration"].startswith(breaking) and breaking:
            trial["placement"] = "first"
        for stage in range(trial["stages"]):
            results.append(observe(trial, (stage + 1) / trial["stages"]))
        trial["configuration"], trial["placement"] = kept
    return results


def experiment_of(name: str) -> experiments.Trials:
    (experiment,) = (one for one in experiments.TRIALS if one.name == name)
    return experiment


def section(name: str, breaking: str = "", size: Extent = QUICK) -> Section:
    experiment = experiment_of(name)
    return experiment.section(observe_all(experiment.parts(size), breaking), HARDWARE)


def failed(checks: Sequence[Check]) -> list[str]:
    return [check.what for check in checks if not check.holds]


def save_less(result: Result, pages: int) -> None:
    result["pages_sharing"] -= pages


def free_nothing(result: Result) -> None:
    result["pages_freed"] = 0


def put(instance: ResultInstance, local: float) -> None:
    node = instance["node"]
    instance["pages_by_node"] = {
        str(node): round(PAGES * local),
        str(node + 1): PAGES - round(PAGES * local),
    }
    instance["counts"] = counts(node, local, 2)
