# SPDX-License-Identifier: GPL-2.0-only
"""As in `fairness`, but nothing waits for anything; hot data, or huge pages."""

from dataclasses import replace

from nuksmlab.machine import Machine
from nuksmlab.paper import use
from nuksmlab.paper.extent import NUKSM, OFF, STOCK, Extent, Part, by_turns, trial
from nuksmlab.paper.trial import Trial, places

NODE_MIB = 512
# Whose answer is the same whatever it did before.
WORKLOAD = "skewed"
# Of the pages, those that nine in ten accesses go to. Of all, none is. Or there is no
# such part, and the n-th page has 1/n of the first one's accesses.
ZIPF_PERCENT, ALL_PERCENT = 0, 100
HOT = (ZIPF_PERCENT, 25, ALL_PERCENT)
AT_ONCE = replace(NUKSM, name="nuKSM, just merged")
# How often nuksmd has looked when instances are measured.
LOOKS = {OFF: 0, STOCK: 0, AT_ONCE: 0, NUKSM: use.LOOKS}


def trials(extent: Extent, hot: int, *, huge: bool = False) -> list[Trial]:
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
            "busy": {"hot_percent": hot, "huge": huge, "looks": looks},
        }
        for repetition in range(extent.repetitions)
        for configuration, looks in LOOKS.items()
    ]


def parts(extent: Extent) -> list[Part]:
    several = {f"busy-{hot}": trials(extent, hot) for hot in HOT}
    several["busy-huge"] = trials(extent, ALL_PERCENT, huge=True)
    return [
        Part(name, Machine(2, NODE_MIB), extent.caches, own)
        for name, own in several.items()
    ]
