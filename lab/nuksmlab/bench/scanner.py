# SPDX-License-Identifier: GPL-2.0-only
"""One full scan by ksmd, neither more nor less."""

import itertools
import time

from nuksmlab import wait
from nuksmlab.bench.records import Scan
from nuksmlab.ksm import Ksm

SCAN_SECONDS = 900.0
POLL_SECONDS = 0.02
COUNTERS = (
    *("pages_shared", "pages_sharing", "pages_unshared", "pages_volatile"),
    *("stable_node_chains", "stable_node_dups"),
    *("checksum_compares", "content_compares", "compared_bytes"),
    *("collisions", "replaced", "summed"),
)

# ksmd ends a round when it has scanned so many pages, or all there are; then it
# rests until the time is over or its length is changed.
ALL_PAGES = 2**32 - 1
HOURS_MILLISECONDS = (3_600_000, 7_200_000)


class Scanner:
    def __init__(self, ksm: Ksm) -> None:
        self.ksm = ksm
        self.rests = itertools.cycle(HOURS_MILLISECONDS)
        self.at_once()
        # It would leave out pages that were looked at before to no avail.
        ksm.write("smart_scan", 0)

    def at_once(self) -> None:
        """From now on a scan is made in one go, when it is asked for."""
        self.ksm.stop()
        self._change_rest()
        self.ksm.write("pages_to_scan", ALL_PAGES)

    def _change_rest(self) -> None:
        self.ksm.write("sleep_millisecs", next(self.rests))

    def counters(self) -> dict[str, int | None]:
        return {
            name: self.ksm.read(name) if (self.ksm.root / name).exists() else None
            for name in COUNTERS
        }

    def scan(self) -> Scan:
        """All pages once."""
        before = self.counters()
        scans = self.ksm.read("full_scans")
        began = time.time()
        self.ksm.start()
        wait.until(
            lambda: self.ksm.read("full_scans") > scans,
            lambda: f"one full scan; counters are {self.counters()}",
            SCAN_SECONDS,
            POLL_SECONDS,
        )
        self.ksm.stop()  # waits for the end of the round
        ended = time.time()
        self._change_rest()  # wakes it, to find that it is stopped
        return {
            "began": began,
            "ended": ended,
            "before": before,
            "after": self.counters(),
        }
