# SPDX-License-Identifier: GPL-2.0-only
"""One run: two instances, a job, and time."""

from typing import TypedDict


class Run(TypedDict):
    configuration: str
    index: str
    kib_per_tree: int | None  # None for the kernel's default
    data: str  # worst: pages differ in their last bytes only; ordinary
    instance_mib: int
    step_mib: int  # that the job allocates each time
    steps: int
    interval: float  # seconds from one step to the next
    repetition: int


class Moment(TypedDict):
    seconds: float  # since ksmd and the job started
    free_mib: float
    saved_mib: float
    ksmd_seconds: float  # of CPU time, by the guest's own account
    allocated_mib: int  # by the job


class Observed(TypedDict):
    """A line of observed.jsonl."""

    run: Run
    moments: list[Moment]
    killed: list[str]  # by the kernel, for want of memory
