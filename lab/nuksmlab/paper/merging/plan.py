# SPDX-License-Identifier: GPL-2.0-only
"""Stock's index and ours: the worst case, the best case, and virtual machines."""

import tomllib
from pathlib import Path
from typing import Any

from nuksmlab.bench import plan as bench
from nuksmlab.bench.plan import Index
from nuksmlab.machine import Machine
from nuksmlab.paper.extent import Extent
from nuksmlab.paper.merging.records import Run

NAME = "merging"
# A folder of raw samples for each.
COPIES_PART, IMAGES_PART = f"{NAME}-copies", f"{NAME}-images"
GUESTS_PART = f"{NAME}-guests"

WORST, BEST, REAL = "worst", "best", "virtual machines"
IMAGES = "images of guests"
CASES = (WORST, BEST)
COPIES = 4
# Before and after the copies up to this one were merged, memory is read.
READ_COPIES = 2

OLD, OURS = "KSM", "ours"
INDEXES = {OLD: bench.ONE_TREE, OURS: bench.DEFAULT}

# ksmd's passes for each copy: the first notes checksums, if the page is new to it,
# and the second merges. In virtual machines some pages take more.
PASSES, MOST_PASSES = 2, 6

# Of what a guest's memory was in a moment: some pages are found in the third only.
IMAGE_PASSES = 3
IMAGE_MIB = 256
IMAGES_GUEST_MIB = 1536

# Two copies that are not merged yet, what the kernel keeps of all pages, the rest.
COPIES_GUEST_MIB = 3072

# The nodes of the virtual machines: two at once, and a third one.
GUESTS_AT = ((0, 1), (0,))
MACHINE = Machine(2, 768)
WORKLOAD = "btree"
OPERATIONS = 5000


def image_names(guests: int) -> list[str]:
    """Files in the folder of the boot."""
    return [f"image-{number}" for number in range(1, guests + 1)]


def run(case: str, configuration: str, index: Index, mib: int, number: int) -> Run:
    return {
        "case": case,
        "configuration": configuration,
        "index": index.order,
        "kib_per_tree": index.kib_per_tree,
        "mib": mib,
        "repetition": number,
    }


def in_turn(repetition: int) -> list[tuple[str, Index]]:
    """The indexes take turns at being the first."""
    several = list(INDEXES.items())
    return several if repetition % 2 == 0 else several[::-1]


def copies(extent: Extent) -> list[Run]:
    """Short runs: once more than others, so that one can be told from the noise."""
    return [
        run(case, name, index, extent.copy_mib, repetition)
        for repetition in range(extent.other_repetitions + 1)
        for case in CASES
        for name, index in in_turn(repetition)
    ]


def images(extent: Extent) -> list[Run]:
    """Two guests in small, three in full."""
    return [
        {
            **run(IMAGES, name, index, IMAGE_MIB, repetition),
            "guests": extent.other_repetitions + 1,
        }
        for repetition in range(extent.other_repetitions + 1)
        for name, index in in_turn(repetition)
    ]


def guests(extent: Extent) -> list[Run]:
    return [
        run(REAL, name, index, extent.kib // 1024, repetition)
        for repetition in range(extent.other_repetitions)
        for name, index in in_turn(repetition)
    ]


def published() -> Any:
    path = Path(__file__).with_name("published.toml")
    return tomllib.loads(path.read_text())
