# SPDX-License-Identifier: GPL-2.0-only
"""Do two samples differ?"""

import math
from collections.abc import Sequence
from itertools import groupby


def rank_sum(left: Sequence[float], right: Sequence[float]) -> tuple[float, float]:
    """Of two samples: p, two-sided, and how often one of the left is the greater.

    The test of Mann and Whitney, by its normal approximation, with ties.
    """
    marked = sorted([(value, 0) for value in left] + [(value, 1) for value in right])
    below, ranks, ties = 0, 0.0, 0.0
    for _, tied in groupby(marked, key=lambda pair: pair[0]):
        sides = [side for _, side in tied]
        count = len(sides)
        ranks += sides.count(0) * (below + (count + 1) / 2)
        ties += count**3 - count
        below += count
    pairs, both = len(left) * len(right), len(marked)
    above = ranks - len(left) * (len(left) + 1) / 2
    variance = pairs / 12 * (both + 1 - ties / (both * (both - 1)))
    if variance == 0:
        return 1.0, 0.5
    score = abs(above - pairs / 2) / math.sqrt(variance)
    return math.erfc(score / math.sqrt(2)), above / pairs
