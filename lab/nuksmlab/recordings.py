# SPDX-License-Identifier: GPL-2.0-only
"""Recordings as `nuksm record` writes them, of a host that never was."""

import json
from pathlib import Path
from typing import Any

START = 1_764_000_000.0  # 2025-11-24 16:00:00 UTC
INTERVAL = 10.0
PAGE = 4096
KERNEL = "6.12.117"


def header(host: str = "host-a") -> dict[str, Any]:
    return {
        "nuksm_recording": 1,
        "host": host,
        "kernel": KERNEL,
        "page_bytes": PAGE,
        "start_unix_time": START,
        "interval_seconds": int(INTERVAL),
    }


def tenant(pid: int, node: int, merged: int, local: int) -> dict[str, Any]:
    return {
        "pid": pid,
        "name": f"vm-{node}",
        "node": node,
        "nice": 0,
        "merged_mappings": merged,
        "local_mappings": local,
        "remote_mappings": merged - local,
        "saved_bytes": merged // 2 * PAGE,
        "tracked_pages": 2 * merged,
        "ksm_merged_local": None,
        "ksm_merged_remote": None,
    }


def node(number: int, merged: int, local: int, remote: int) -> dict[str, Any]:
    return {
        "node": number,
        "merged_pages": merged,
        "local_mappings": local,
        "remote_mappings": remote,
        "free_bytes": 1 << 30,
    }


def sample(index: int, pages: int) -> dict[str, Any]:
    """Two tenants on two nodes share `pages` pages, all of them on node 0."""
    return {
        "unix_time": START + index * INTERVAL,
        "kernel": KERNEL,
        "ksm": {
            "run": 1,
            "pages_to_scan": 100,
            "sleep_millisecs": 20,
            "pages_shared": pages,
            "pages_sharing": pages,
            "pages_unshared": 50,
            "pages_volatile": 7,
            "pages_scanned": 500 * index,
            "general_profit": pages * PAGE - 64 * pages,
        },
        "engine": None,
        "savings": {
            "saved_bytes": pages * PAGE,
            "zero_page_saved_bytes": 0,
            "metadata_bytes": 64 * pages,
            "net_saved_bytes": pages * PAGE - 64 * pages,
        },
        "ksmd_cpu_seconds": 0.5 * index,
        "load": {
            "cpu_busy_seconds": 4.0 * index,
            "cpu_total_seconds": 40.0 * index,
            "memory_used_bytes": (3 << 30) - pages * PAGE,
            "memory_total_bytes": 8 << 30,
        },
        "nodes": [node(0, pages, pages, pages), node(1, 0, 0, 0)],
        "tenants": [tenant(100, 0, pages, pages), tenant(101, 1, pages, 0)],
        "notes": [],
    }


def lines(pages: list[int]) -> list[str]:
    """A recording whose samples have so many merged pages."""
    records = [header(), *(sample(index, count) for index, count in enumerate(pages))]
    return [json.dumps(record, separators=(",", ":")) for record in records]


def write(path: Path, pages: list[int]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines(pages)))
    return path
