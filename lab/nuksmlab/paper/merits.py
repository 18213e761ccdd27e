# SPDX-License-Identifier: GPL-2.0-only
"""The paper's figures of merit (V-B) of equal instances of one workload.

Each repetition stands by itself: a mean over two that are unfair in opposite ways
would look fair.
"""

from collections.abc import Mapping, Sequence

from nuksmlab.paper import model
from nuksmlab.paper.extent import OFF, STOCK, Configuration
from nuksmlab.paper.model import Hardware
from nuksmlab.paper.trial import (
    Result,
    freed_mib,
    local_pages_percent,
    saved_mib,
)


class Merits:
    """By configuration; of each repetition, in their order."""

    def __init__(
        self, name: str, groups: Mapping[str, list[Result]], hardware: Hardware
    ) -> None:
        self.name = name
        self.groups = groups
        self.hardware = hardware

    def results(self, configuration: Configuration) -> list[Result]:
        return self.groups[configuration.name]

    def times(self, configuration: Configuration) -> list[list[float]]:
        """Of each instance, in seconds."""
        return model.seconds_of(self.results(configuration), self.hardware)

    def slowdowns(self, configuration: Configuration) -> list[list[float]]:
        """Of each instance, against KSM off in the same repetition."""
        return [
            model.slowdowns(times, unmerged)
            for times, unmerged in zip(
                self.times(configuration), self.times(OFF), strict=True
            )
        ]

    def fairness(self, configuration: Configuration) -> list[float]:
        return [model.fairness(each) for each in self.slowdowns(configuration)]

    def difference_percent(self, configuration: Configuration) -> list[float]:
        """By how much the slowest instance is slower than the quickest."""
        return [
            100 * (max(times) / min(times) - 1) for times in self.times(configuration)
        ]

    def performance(self, configuration: Configuration) -> list[float]:
        """All instances' together, relative to stock KSM."""
        return [
            sum(stock) / sum(times)
            for stock, times in zip(
                self.times(STOCK), self.times(configuration), strict=True
            )
        ]

    def remote(self, configuration: Configuration) -> list[list[float]]:
        """Of each instance's DRAM accesses, in percent."""
        return model.remote_percent_of(self.results(configuration))

    def remote_apart(self, configuration: Configuration) -> list[float]:
        """The largest difference of these shares, in points."""
        return [max(shares) - min(shares) for shares in self.remote(configuration)]

    def local_pages(self, configuration: Configuration) -> list[list[float]]:
        """Of each instance's data, in percent."""
        return [
            [local_pages_percent(instance) for instance in result["instances"]]
            for result in self.results(configuration)
        ]

    def saved(self, configuration: Configuration) -> list[float]:
        """By KSM's counters, in MiB."""
        return [saved_mib(result) for result in self.results(configuration)]

    def freed(self, configuration: Configuration) -> list[float]:
        """By the machine's free memory, in MiB."""
        return [freed_mib(result) for result in self.results(configuration)]

    def freed_share(self, configuration: Configuration) -> list[float]:
        """Of what the counters say is saved."""
        return [
            freed / saved
            for freed, saved in zip(
                self.freed(configuration), self.saved(configuration), strict=True
            )
        ]


def by_instance(repetitions: Sequence[Sequence[float]]) -> list[list[float]]:
    """Of each instance all repetitions, where there is of each repetition all."""
    return [list(column) for column in zip(*repetitions, strict=True)]
