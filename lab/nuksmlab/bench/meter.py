# SPDX-License-Identifier: GPL-2.0-only
"""How much CPU time a guest's kernel took between two moments.

Under User-Mode Linux a kernel is a process, and its guest's processes are
others: while ksmd scans and nothing else runs in the guest, that process' CPU
time is ksmd's. The host counts it; the guest could only tell how time went by,
also while the host gave the CPU to somebody else.
"""

import bisect
import os
import threading
import time
from array import array
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from nuksmlab import guard, wait

SAMPLE_SECONDS = 0.005

# In the guest's folder of results, one by the guest, one by the host.
MEASURED, SAMPLED = "measured", "sampled"


def wait_until_sampled(output: Path) -> None:
    """In the guest, before it ends: until the host has its CPU time up to now.

    A busy host may not come to look before the guest is gone.
    """
    (output / MEASURED).touch()
    wait.until((output / SAMPLED).exists, lambda: f"{SAMPLED} in {output}, by the host")


def cpu_clock(pid: int) -> int:
    """A clock for clock_gettime, made as clock_getcpuclockid(3) does."""
    return (~pid << 3) | 2


def descendant_that_runs(program: Path) -> int | None:
    """The first one: User-Mode Linux's processes are others of the same program."""
    for pid in guard.descendants(os.getpid()):
        with suppress(OSError):  # it has just ended
            if Path(f"/proc/{pid}/exe").resolve() == program.resolve():
                return pid
    return None


class Meter:
    """Samples the CPU time of a descendant as long as the `with` block lasts.

    `output` is the folder of the guest's results, where it says that all is measured.
    """

    def __init__(self, program: Path, output: Path) -> None:
        self.program = program
        self.output = output
        self.moments = array("d")
        self.used = array("d")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def _sample(self) -> None:
        pid = None
        while not self._over.wait(SAMPLE_SECONDS):
            pid = pid or descendant_that_runs(self.program)
            if pid is None:
                continue
            all_is_measured = (self.output / MEASURED).exists()
            try:
                used = time.clock_gettime(cpu_clock(pid))
            except OSError:
                return  # it has ended
            self.moments.append(time.time())
            self.used.append(used)
            if all_is_measured:
                (self.output / SAMPLED).touch()

    def _used_until(self, moment: float) -> float:
        after = bisect.bisect(self.moments, moment)
        if not 0 < after < len(self.moments):
            raise ValueError(f"the CPU time at {moment} was not sampled")
        before = after - 1
        length = self.moments[after] - self.moments[before]
        part = (moment - self.moments[before]) / length
        return self.used[before] + part * (self.used[after] - self.used[before])

    def seconds(self, began: float, ended: float) -> float:
        """Used between two moments of the host's clock, which the guest's follows."""
        return self._used_until(ended) - self._used_until(began)

    def __enter__(self) -> "Meter":
        for left_over in (MEASURED, SAMPLED):
            (self.output / left_over).unlink(missing_ok=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
