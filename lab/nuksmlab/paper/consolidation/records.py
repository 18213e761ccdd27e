# SPDX-License-Identifier: GPL-2.0-only
"""A scenario: some guests, first without merging, then with it."""

from dataclasses import dataclass
from typing import Any, TypedDict

# A sample, as `nuksm record` writes it.
Sample = dict[str, Any]


class Scenario(TypedDict):
    name: str
    kernels: list[str]  # of the guests: ours or stock


class Plan(TypedDict):
    """One boot. A scenario keeps the guests of the one before it."""

    scenarios: list[Scenario]
    node_mib: int
    guest_mib: int
    load_mib: int  # that each guest writes again and again
    without_seconds: float
    scans: int  # of all mergeable memory, until merging counts as done
    interval_seconds: int  # between two samples
    speed: dict[str, int]  # ksmd's


class Phase(TypedDict):
    recording: str  # its file, by `nuksm record`
    guests_cpu_seconds: float  # of all guests' QEMU
    seconds: float


class Observed(TypedDict):
    """A line of observed.jsonl."""

    scenario: Scenario
    without: Phase
    merging: Phase
    # Of all files of their user space, as each guest reads them when merged.
    checksums: list[int]


@dataclass(frozen=True)
class Recording:
    phase: Phase
    samples: list[Sample]
    raw: str  # file and lines


@dataclass(frozen=True)
class Result:
    name: str
    without: Recording
    merging: Recording
    checksums: list[int]
    expected: int
