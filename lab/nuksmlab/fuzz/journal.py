# SPDX-License-Identifier: GPL-2.0-only
"""Which seeds ran on which kernel for how long, and what came of it: JSON lines."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# Written in the machine: a line when a round begins, another when it was passed.
ROUNDS = "rounds.jsonl"
PASSED, FAILED, INTERRUPTED = "passed", "failed", "interrupted"


@dataclass(frozen=True)
class Entry:
    """A round, the last one of a machine perhaps without an end."""

    kernel: str
    build: str
    nodes: int
    seed: int
    seconds: int
    actions: int
    result: str


@dataclass
class Total:
    rounds: int = 0
    seconds: int = 0
    actions: int = 0
    failed: int = 0


def records(text: str) -> Iterator[dict[str, Any]]:
    """Of lines of JSON; one that was cut off, as by a full disk, is none."""
    for line in text.splitlines():
        with suppress(ValueError):
            yield json.loads(line)


def rounds(text: str, kernel: str, build: str, nodes: int, unended: str) -> list[Entry]:
    """What a machine noted; what became of a round without an end is `unended`."""
    seen: dict[int, Entry] = {}
    for facts in records(text):
        ended = "seconds" in facts
        seen[facts["seed"]] = Entry(
            kernel,
            build,
            nodes,
            facts["seed"],
            facts.get("seconds", 0),
            facts.get("actions", 0),
            PASSED if ended else unended,
        )
    return list(seen.values())


def add(journal: Path, entries: Iterable[Entry]) -> None:
    journal.parent.mkdir(parents=True, exist_ok=True)
    before = journal.read_text() if journal.exists() else ""
    with journal.open("a") as file:
        if before and not before.endswith("\n"):  # it was cut off
            file.write("\n")
        for entry in entries:
            file.write(f"{json.dumps(asdict(entry))}\n")


def read(journal: Path) -> list[Entry]:
    if not journal.exists():
        return []
    return [Entry(**facts) for facts in records(journal.read_text())]


def totals(entries: Iterable[Entry]) -> dict[tuple[str, str, int], Total]:
    """By kernel, build and number of nodes."""
    result: dict[tuple[str, str, int], Total] = defaultdict(Total)
    for entry in entries:
        total = result[entry.kernel, entry.build, entry.nodes]
        total.rounds += 1
        total.seconds += entry.seconds
        total.actions += entry.actions
        total.failed += entry.result == FAILED
    return dict(result)


def table(entries: Iterable[Entry]) -> str:
    rows = [
        f"  {build}, {nodes} nodes: {total.rounds} rounds,"
        f" {total.seconds / 3600:.2f} h, {total.actions} actions,"
        f" {total.failed} failed"
        for (_, build, nodes), total in sorted(totals(entries).items())
    ]
    return "\n".join(rows)
