# SPDX-License-Identifier: GPL-2.0-only
"""The ways of scanning that are compared in one boot of our kernel."""

from dataclasses import dataclass
from pathlib import Path

from nuksmlab.ksm import Ksm

READ_ALL = Path("/sys/kernel/debug/nuksm/read_all")


@dataclass(frozen=True)
class Setting:
    """What is written to KSM's files while no page is tracked."""

    index: str
    kib_per_tree: int | None  # None for the kernel's default
    smart_scan: bool
    read_all: bool  # pages that nobody wrote to, too


# By the names in the results. With its pages in one tree by content, our kernel does
# what stock does; what it did before it left pages unread, it does on demand.
SETTINGS = {
    "stock": Setting("content", 0, smart_scan=False, read_all=True),
    "stock smart_scan": Setting("content", 0, smart_scan=True, read_all=True),
    "before": Setting("checksum", None, smart_scan=False, read_all=True),
    "ours": Setting("checksum", None, smart_scan=False, read_all=False),
}


def apply(ksm: Ksm, setting: Setting, default_kib: int) -> None:
    """Un-merges everything, and sets it."""
    ksm.unmerge()
    ksm.write_text("index", setting.index)
    kib = default_kib if setting.kib_per_tree is None else setting.kib_per_tree
    ksm.write("kib_per_tree", kib)
    ksm.write("smart_scan", int(setting.smart_scan))
    READ_ALL.write_text("1" if setting.read_all else "0")
