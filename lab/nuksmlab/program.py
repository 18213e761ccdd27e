# SPDX-License-Identifier: GPL-2.0-only
"""Runs `nuksm` as an operator's script would, and reads its JSON."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

from nuksmlab import paths


class PlacedTenant(TypedDict):
    pid: int
    name: str
    node: int
    nice: int
    merged_mappings: int
    local_before: int
    local_after: int


class Pass(TypedDict):
    """What `nuksm place --json` says of one pass."""

    policy: str
    pages_looked_at: int
    merged_pages: int
    planned: int
    moved: int
    refused: int
    refusals: dict[str, int]
    no_room: int
    cpu_seconds: float
    wall_seconds: float
    peak_memory_bytes: int
    tenants: list[PlacedTenant]


class StatusTenant(TypedDict):
    pid: int
    name: str
    node: int
    nice: int
    merged_mappings: int
    local_mappings: int
    remote_mappings: int


class Status(TypedDict):
    """The parts of `nuksm status --json` that the lab uses."""

    kernel: str
    ksm: dict[str, Any]
    nodes: list[dict[str, int]]
    tenants: list[StatusTenant]
    notes: list[str]


def run(
    *arguments: str, binary: Path = paths.NUKSM
) -> subprocess.CompletedProcess[str]:
    """Whatever it answers, exit status included."""
    command = [str(binary), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def read_json(*arguments: str, binary: Path = paths.NUKSM) -> Any:
    """What it prints with --json; a failure is an error with its message."""
    done = run(*arguments, "--json", binary=binary)
    if done.returncode != 0:
        command = " ".join(arguments)
        raise RuntimeError(f"nuksm {command}: {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def status(binary: Path = paths.NUKSM) -> Status:
    return cast(Status, read_json("status", binary=binary))


def place_once(policy: str, *options: str, binary: Path = paths.NUKSM) -> Pass:
    arguments = ["place", "--once", "--policy", policy, *options]
    return cast(Pass, read_json(*arguments, binary=binary))


def start_daemon(policy: str, options: Sequence[str]) -> subprocess.Popen[str]:
    """`nuksm place` until it is told to end; one JSON line per pass."""
    command = [str(paths.NUKSM), "place", "--policy", policy, "--json", *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
