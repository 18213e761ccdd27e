# SPDX-License-Identifier: GPL-2.0-only
"""How much more one thing costs than another, from pairs of both."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A mean of what was measured, and its standard error."""

    mean: float
    error: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.error:.2f}"


def more(pairs: Iterable[tuple[float, float]]) -> Estimate:
    """In percent, what the second of each pair is more: the geometric mean.

    A pair is measured in one go: what the host's other users do is much the same for
    both.
    """
    logs = [math.log(second / first) for first, second in pairs]
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    return Estimate(100 * math.expm1(statistics.mean(logs)), 100 * error)
