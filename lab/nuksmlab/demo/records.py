# SPDX-License-Identifier: GPL-2.0-only
"""What the guest observes phase by phase, and the summary made from it."""

from typing import TypedDict

from nuksmlab.program import Pass, Status


class SeenTenant(TypedDict):
    name: str
    node: int
    nice: int
    merged_pages: int
    local_pages: int
    kernel_local_pages: int  # by /proc/PID/numa_maps, not by nuksm


class Phase(TypedDict):
    name: str
    passes: list[Pass]
    pages_shared: tuple[int, int]  # before and after
    pages_sharing: tuple[int, int]
    tenants: list[SeenTenant]
    status: Status


class Observed(TypedDict):
    placed_by: str  # "nuksm place", or "the kernel", which leaves no passes
    nodes: int
    phases: list[Phase]
    bad_pages: dict[str, int]


class SummaryTenant(TypedDict):
    name: str
    node: int
    nice: int
    merged_pages: int
    local_pages: int


class SummaryPhase(TypedDict):
    name: str
    moved: int
    refused: int
    second_pass_moved: int
    tenants: list[SummaryTenant]


class Summary(TypedDict):
    kernel: str
    placed_by: str
    nodes: int
    pages_shared: int
    pages_sharing: int
    content_intact: bool
    phases: list[SummaryPhase]


def summarize_phase(phase: Phase) -> SummaryPhase:
    first, second = phase["passes"] or (None, None)
    return {
        "name": phase["name"],
        "moved": first["moved"] if first else 0,
        "refused": first["refused"] if first else 0,
        "second_pass_moved": second["moved"] if second else 0,
        "tenants": [
            {
                "name": tenant["name"],
                "node": tenant["node"],
                "nice": tenant["nice"],
                "merged_pages": tenant["merged_pages"],
                "local_pages": tenant["local_pages"],
            }
            for tenant in phase["tenants"]
        ],
    }


def summarize(observed: Observed) -> Summary:
    last = observed["phases"][-1]
    return {
        "kernel": last["status"]["kernel"],
        "placed_by": observed["placed_by"],
        "nodes": observed["nodes"],
        "pages_shared": last["pages_shared"][1],
        "pages_sharing": last["pages_sharing"][1],
        "content_intact": not any(observed["bad_pages"].values()),
        "phases": [summarize_phase(phase) for phase in observed["phases"]],
    }
