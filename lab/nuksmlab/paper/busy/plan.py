# SPDX-License-Identifier: GPL-2.0-only
"""As in `fairness`, but nothing waits for anything, and some data are hot."""

from dataclasses import replace

from nuksmlab.machine import Machine
from nuksmlab.paper import use
from nuksmlab.paper.extent import NUKSM, OFF, STOCK, Extent, Part, by_turns, trial
from nuksmlab.paper.trial import Trial, places

NODE_MIB = 512
# Whose answer is the same whatever it did before.
WORKLOAD = "skewed"
# Of the pages, those that nine in ten accesses go to. Of all, none is.
HOT = (25, 100)
AT_ONCE = replace(NUKSM, name="nuKSM, just merged")
# How often nuksmd has looked when instances are measured.
LOOKS = {OFF: 0, STOCK: 0, AT_ONCE: 0, NUKSM: use.LOOKS}


def trials(extent: Extent, hot: int) -> list[Trial]:
    return [
        {
            **trial(
                extent,
                WORKLOAD,
                configuration,
                by_turns(places([0, 1]), repetition),
                kib=extent.kib // 2,
                repetition=repetition,
            ),
            "busy": {"hot_percent": hot, "looks": looks},
        }
        for repetition in range(extent.repetitions)
        for configuration, looks in LOOKS.items()
    ]


def parts(extent: Extent) -> list[Part]:
    return [
        Part(f"busy-{hot}", Machine(2, NODE_MIB), extent.caches, trials(extent, hot))
        for hot in HOT
    ]
