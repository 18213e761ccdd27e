# SPDX-License-Identifier: GPL-2.0-only
"""One run: copies of a program, or virtual machines, that come one after another."""

from typing import NotRequired, TypedDict

from nuksmlab.bench.records import Scan, merged_mib

# Of what is merged in all; a pass that merges less is not one that merges.
LEAST_SHARE = 0.01


class Run(TypedDict):
    case: str  # of plan
    configuration: str
    index: str
    kib_per_tree: int | None  # None for the kernel's default
    mib: int  # of each copy, or of each virtual machine's data or memory
    repetition: int
    guests: NotRequired[int]  # of whom there are images


class Step(TypedDict):
    """What came, and ksmd's passes after that."""

    added: str
    passes: list[Scan]
    cpu_seconds: list[float]  # ksmd's, of each pass


def merges(step: Step, number: int) -> bool:
    """Whether that pass does more than next to nothing."""
    found = [merged_mib(one) for one in step["passes"]]
    return found[number] > LEAST_SHARE * sum(found)


class Observed(TypedDict):
    """A line of observed.jsonl."""

    run: Run
    steps: list[Step]


class Copies(Observed):
    # Of the first copy: nanoseconds for a word of each page, several times.
    read_before: list[int]
    read_after: list[int]
    bad_pages: int  # of all copies in the end, when every byte is compared


class Images(Observed):
    bad_pages: int  # that differ from the image's in the end


class Guests(Observed):
    answers: list[str]  # of the workload in each, when all are merged
