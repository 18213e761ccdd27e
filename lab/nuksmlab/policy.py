# SPDX-License-Identifier: GPL-2.0-only
"""What each placement promises (paper, IV-A, IV-B, IV-E), for nobody using pages."""

import math
from collections.abc import Sequence

# Lots are as random numbers: beyond so many standard deviations, one share in two
# million is by chance.
DEVIATIONS = 5


def target(placement: str, nodes: Sequence[int], nices: Sequence[int]) -> list[float]:
    """Share of each node that has a tenant, from the lowest node on."""
    weights = dict.fromkeys(nodes, 0.0)
    for node, nice in zip(nodes, nices, strict=True):
        weights[node] += 1 / (nice + 21)
    if placement == "fair":
        weights = dict.fromkeys(nodes, 1.0)
    total = sum(weights.values())
    return [weights[node] / total for node in sorted(weights)]


def allowed(share: float, pages: int) -> float:
    """How far off a share of so many pages may be by chance."""
    return DEVIATIONS * math.sqrt(share * (1 - share) / pages)


def off_by_more_than_chance(
    found: Sequence[float], wanted: Sequence[float], pages: int
) -> str | None:
    """Of shares of so many pages, by node: what is wrong with them."""
    for share, goal in zip(found, wanted, strict=True):
        if abs(share - goal) > allowed(goal, pages):
            return (
                f"shares are {found}, and {wanted} wanted: of {pages} pages"
                f" {allowed(goal, pages):.3f} may be chance"
            )
    return None
