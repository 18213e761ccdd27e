# SPDX-License-Identifier: GPL-2.0-only
"""What each placement promises (paper, IV-A, IV-B, IV-E), for nobody using pages."""

from collections.abc import Sequence


def target(placement: str, nodes: Sequence[int], nices: Sequence[int]) -> list[float]:
    """Share of each node that has a tenant, from the lowest node on."""
    weights = dict.fromkeys(nodes, 0.0)
    for node, nice in zip(nodes, nices, strict=True):
        weights[node] += 1 / (nice + 21)
    if placement == "fair":
        weights = dict.fromkeys(nodes, 1.0)
    total = sum(weights.values())
    return [weights[node] / total for node in sorted(weights)]
