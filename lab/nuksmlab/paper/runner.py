# SPDX-License-Identifier: GPL-2.0-only
"""Runs the parts of experiments and keeps what they observed: build/paper/raw.

Of each part: plan.json, observed.jsonl, counts.jsonl, the guest's messages, and,
when it ended well, complete.json. A part that is complete is not run again
unless something that it is made from changed.
"""

import hashlib
import json
import platform
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypedDict, cast

from nuksmlab import counter, database, paths, virtual
from nuksmlab.counter import Counts
from nuksmlab.paper import use
from nuksmlab.paper.extent import Part
from nuksmlab.paper.start import run_here
from nuksmlab.paper.trial import Observed, Result, Trial
from nuksmlab.paper.where import Where

# Of the lab, what a guest runs and how it is booted.
SOURCES = (
    *("counter.py", "ksm.py", "machine.py", "numa.py", "perf.py", "processes.py"),
    *("program.py", "workload.py"),
    *("paper/guest.py", "paper/start.py", "paper/trial.py"),
)


# The same, by how the names of the workloads begin that alone use it.
SOURCES_OF = {
    database.NAME: ("database.py",),
    virtual.PREFIX: ("nested.py", "virtual.py"),
    f"{virtual.PREFIX}{database.NAME}": (
        *("database.py", "database_guest.py", "database_guest.sh"),
        *("debian_guest.py", "initramfs.py"),
    ),
    use.NAME: ("replicas.py", "paper/use.py"),
}


class Complete(TypedDict):
    """What a part was made from and by."""

    inputs: str  # a hash of what could change the result
    command: str
    machine: str
    caches: dict[str, int]
    kernel: str
    programs: dict[str, str]  # by file name, their hashes
    expected: dict[str, str]  # checksums of runs on the host
    host: str
    seconds: float
    finished: str


def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def made_from(known: object, sources: Iterable[str], programs: Iterable[Path]) -> str:
    """A hash that changes with whatever could change the result."""
    lab = paths.REPOSITORY / "lab" / "nuksmlab"
    files = [*(lab / name for name in sources), *programs]
    text = json.dumps([known, [file_hash(path) for path in files]])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def inputs(part: Part, where: Where) -> str:
    own = [
        name
        for prefix, names in SOURCES_OF.items()
        for name in names
        if any(trial["workload"].startswith(prefix) for trial in part.trials)
    ]
    known = {
        "trials": part.trials,
        "machine": where.describe(part),
        "kernel": where.kernel,
        "caches": vars(part.caches),
    }
    return made_from(known, [*SOURCES, *own], where.programs)


def work(trial: Trial) -> str:
    return f"{trial['workload']}, {trial['kib']} KiB, {trial['operations']}"


def expected(part: Part) -> dict[str, str]:
    """What instances answer here, where nothing is merged."""
    different = {work(trial): trial for trial in part.trials}
    return {
        name: run_here(trial["workload"], trial["kib"], trial["operations"])
        for name, trial in different.items()
    }


def completed(kept: Path) -> Complete | None:
    path = kept / "complete.json"
    try:
        return cast(Complete, json.loads(path.read_text()))
    except (FileNotFoundError, ValueError):  # or it was cut off, as by a full disk
        return None


@dataclass(frozen=True)
class Facts:
    """What is known of a boot before it is run."""

    inputs: str
    command: str
    machine: str
    kernel: str
    programs: Sequence[Path]
    expected: Callable[[], dict[str, str]] = dict  # asked for when it was run
    caches: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Boot:
    """What it runs, from what, and how: into a folder."""

    plan: object
    facts: Facts
    boot: Callable[[Path], None]


def run_once(kept: Path, planned: Boot) -> None:
    """Unless it was run before, from the same inputs."""
    facts, known = planned.facts, completed(kept)
    if known and known["inputs"] == facts.inputs:
        print(f"{kept.name}: kept from {known['finished']}", flush=True)
        return
    kept.mkdir(parents=True, exist_ok=True)
    for old in (kept / "complete.json", *kept.glob("*.jsonl")):
        old.unlink(missing_ok=True)
    (kept / "plan.json").write_text(json.dumps(planned.plan, indent=1) + "\n")
    print(kept.name, flush=True)
    began = time.monotonic()
    planned.boot(kept)
    done: Complete = {
        "inputs": facts.inputs,
        "command": facts.command,
        "machine": facts.machine,
        "caches": dict(facts.caches),
        "kernel": facts.kernel,
        "programs": {path.name: file_hash(path) for path in facts.programs},
        "expected": facts.expected(),
        "host": f"Linux {platform.release()}, {platform.machine()}",
        "seconds": time.monotonic() - began,
        "finished": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    (kept / "complete.json").write_text(json.dumps(done, indent=1) + "\n")


def is_of(planned: Boot, kept: Path) -> bool:
    """Was this plan run, whatever it was made from?"""
    return bool(json.loads((kept / "plan.json").read_text()) == planned.plan)


def boot_of(part: Part, where: Where) -> Boot:
    experiment = part.name.partition("-")[0]
    facts = Facts(
        inputs(part, where),
        f"make paper EXPERIMENT={experiment}{where.option}",
        where.describe(part),
        where.kernel,
        where.programs,
        partial(expected, part),
        vars(part.caches),
    )
    return Boot(part.trials, facts, partial(where.run, part))


def run(part: Part, where: Where, kept: Path) -> None:
    if missing := where.lacks(part):
        print(f"{part.name}: {missing}", flush=True)
        return
    run_once(kept, boot_of(part, where))


def counts_by_tenant(path: Path) -> dict[int, deque[Counts]]:
    result: dict[int, deque[Counts]] = defaultdict(deque)
    for counts in counter.read(path):
        result[counts["tenant"]].append(counts)
    return result


def read(kept: Path) -> Iterator[Result]:
    """Joins what the guest observed with what was counted: phase by phase."""
    done = completed(kept)
    if done is None:
        return
    counts = kept / counter.COUNTS
    is_counted = paths.COUNTER.name in done["programs"]
    counted = counts_by_tenant(counts) if is_counted else None
    lines = (kept / "observed.jsonl").read_text().splitlines()
    for line, text in enumerate(lines, 1):
        observed = cast(Observed, json.loads(text))
        yield {
            "trial": observed["trial"],
            "pages_shared": observed["pages_shared"],
            "pages_sharing": observed["pages_sharing"],
            "pages_freed": observed["pages_freed"],
            "instances": [
                {
                    **instance,
                    "counts": None if counted is None else counted[number].popleft(),
                }
                for number, instance in enumerate(observed["instances"])
            ],
            "learned": observed.get("learned"),
            "huge_kib": observed.get("huge_kib", []),
            "spoilt": observed.get("spoilt"),
            "expected": done["expected"][work(observed["trial"])],
            "raw": f"raw/{kept.name}/observed.jsonl#{line}",
        }
    if counted is not None and any(counted.values()):
        raise ValueError(f"{kept / counter.COUNTS} has more phases than observed")
