# SPDX-License-Identifier: GPL-2.0-only
"""Figures of the paper: nuKSM, PACT 2021."""

from collections.abc import Sequence
from dataclasses import dataclass

SOURCE = "nuKSM, PACT 2021, Table III"


@dataclass(frozen=True)
class NicePair:
    """One row of Table III: nice values, and the published local shares in %."""

    name: str
    nice: tuple[int, int]
    local_percent: tuple[float, float]


TABLE_III = (
    NicePair("C-10:1", (-20, -11), (91, 9)),
    NicePair("C-5:1", (-20, -16), (83, 17)),
    NicePair("C-1:1", (-20, -20), (50, 50)),
    NicePair("C-1:5", (-16, -20), (17, 83)),
    NicePair("C-1:10", (-11, -20), (9, 91)),
)


def priority_percent(nices: Sequence[int]) -> list[float]:
    """Local shares by priority: in proportion to 1/snice, snice = nice + 21."""
    weights = [1 / (nice + 21) for nice in nices]
    return [100 * weight / sum(weights) for weight in weights]
