# SPDX-License-Identifier: GPL-2.0-only
"""Table III's five pairs of nice values; and throughput while KSM merges."""

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, cast

from nuksmlab import database
from nuksmlab.machine import Machine
from nuksmlab.paper.extent import (
    QUICK,
    STOCK,
    Configuration,
    Extent,
    Part,
    by_turns,
    trial,
)
from nuksmlab.paper.trial import Trial, places

NODE_MIB = 512
WORKLOADS = ("btree", "xsbench")
BY_PRIORITY = Configuration("nuKSM", "priority")
CORRECTED = replace(STOCK, name="KSM + nuksm place", corrected="priority")

# Of Figure 4. The paper says 20; the kernel knows none below 19.
THROUGHPUT = "priority-throughput"
SUBVERTED_NICES = (19, -20)
STAGES = 5


class NicePair(TypedDict):
    name: str
    nice: tuple[int, int]
    local_percent: tuple[float, float]


class Published(TypedDict):
    table_3: list[NicePair]
    figure_7: dict[str, float]
    figure_4: dict[str, float]


def published() -> Published:
    text = Path(__file__).with_name("published.toml").read_text()
    return cast(Published, tomllib.loads(text))


def named(configuration: Configuration, pair: NicePair) -> Configuration:
    return replace(configuration, name=f"{configuration.name}, {pair['name']}")


def workloads(extent: Extent) -> Sequence[str]:
    """MySQL's trials take longest: in full only, and there once."""
    return WORKLOADS if extent is QUICK else (*WORKLOADS, database.NAME)


def trials(extent: Extent, workload: str) -> list[Trial]:
    on = [0, 1]
    repetitions = 1 if workload == database.NAME else extent.repetitions
    return [
        planned
        for repetition in range(repetitions)
        for planned in (
            trial(
                extent,
                workload,
                STOCK,
                by_turns(places(on), repetition),
                repetition=repetition,
            ),
            *(
                trial(
                    extent,
                    workload,
                    named(configuration, pair),
                    by_turns(places(on, list(pair["nice"])), repetition),
                    repetition=repetition,
                )
                for pair in published()["table_3"]
                for configuration in (BY_PRIORITY, CORRECTED)
            ),
        )
    ]


def throughput_trials(extent: Extent, nices: Sequence[int]) -> list[Trial]:
    return [
        trial(
            extent, "btree", configuration, places([0, 1], list(nices)), stages=STAGES
        )
        for configuration in (STOCK, BY_PRIORITY)
    ]


def parts(extent: Extent) -> list[Part]:
    shape = Machine(2, NODE_MIB)
    return [
        *(
            Part(
                f"priority-{workload}",
                shape,
                extent.caches,
                trials(extent, workload),
            )
            for workload in workloads(extent)
        ),
        Part(
            THROUGHPUT,
            shape,
            extent.caches,
            throughput_trials(extent, SUBVERTED_NICES),
        ),
    ]
