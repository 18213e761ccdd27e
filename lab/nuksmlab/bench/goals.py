# SPDX-License-Identifier: GPL-2.0-only
"""What a benchmark is to show, and whether it did."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """What is wanted, in words, of a figure."""

    what: str
    measured: float
    holds: bool

    def __str__(self) -> str:
        return (
            f"{'holds ' if self.holds else 'MISSED'} {self.measured:8.2f}  {self.what}"
        )


@dataclass(frozen=True)
class Report:
    """All that was measured, as Markdown, and the goals that it was measured for."""

    text: str
    goals: list[Goal]

    @property
    def verdict(self) -> str:
        missed = sum(not goal.holds for goal in self.goals)
        return f"{len(self.goals) - missed} of {len(self.goals)} goals hold"

    @property
    def holds(self) -> bool:
        return all(goal.holds for goal in self.goals)


def listing(goals: Iterable[Goal]) -> str:
    """As Markdown takes it for text that is set as it is."""
    return "\n".join(f"    {goal}" for goal in goals)
