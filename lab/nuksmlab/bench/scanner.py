# SPDX-License-Identifier: GPL-2.0-only
"""One full scan by ksmd, neither more nor less."""

import time

from nuksmlab.bench.records import Scan
from nuksmlab.ksm import Ksm

POLL_SECONDS = 0.02
COUNTERS = (
    *("pages_shared", "pages_sharing", "pages_unshared", "pages_volatile"),
    *("stable_node_chains", "stable_node_dups"),
    *("checksum_compares", "content_compares", "compared_bytes"),
    *("collisions", "replaced", "summed"),
)


class Scanner:
    def __init__(self, ksm: Ksm) -> None:
        self.ksm = ksm
        # It would leave out pages that were looked at before to no avail.
        ksm.write("smart_scan", 0)

    def counters(self) -> dict[str, int | None]:
        return {
            name: self.ksm.read(name) if (self.ksm.root / name).exists() else None
            for name in COUNTERS
        }

    def _scan_rested(self) -> None:
        self.ksm.scan_rested(POLL_SECONDS)
        self.ksm.stop()  # waits for the end of the round

    def only_scan(self) -> None:
        """All pages once, with nothing counted."""
        self.ksm.rest()
        self._scan_rested()

    def scan(self) -> Scan:
        """All pages once."""
        self.ksm.rest()
        before = self.counters()
        began = time.time()
        self._scan_rested()
        ended = time.time()
        return {
            "began": began,
            "ended": ended,
            "before": before,
            "after": self.counters(),
        }
