# SPDX-License-Identifier: GPL-2.0-only
"""Hot sets of all sizes, and budgets of several, on two and on four nodes."""

from collections.abc import Iterator
from dataclasses import dataclass

from nuksmlab.counter import Caches
from nuksmlab.machine import Machine
from nuksmlab.paper import use
from nuksmlab.paper.extent import NUKSM, STOCK, Configuration, Extent, Part, trial
from nuksmlab.paper.trial import Trial, Use, places

NODE_MIB = 384
NODES = (2, 4)
# A hundredth of the data is still five times what the last-level cache holds.
CACHES = Caches(l1_kib=4, l1_ways=4, llc_kib=16, llc_ways=8)
PART_OF_DATA = 8
HOT = (1, 5, 10, 25, 50, 100)
BUDGETS = (2, 5, 10, 20)


@dataclass(frozen=True)
class Way:
    """To merge: with replicas or without."""

    configuration: Configuration
    budget_percent: int = 0
    across: bool = True
    learns: bool = True


def replicas(percent: int) -> Way:
    named = Configuration(f"nuKSM, replicas {percent} %", "fair")
    return Way(named, percent)


KSM = Way(STOCK, learns=False)
FAIR = Way(NUKSM)
BY_NODE = Way(Configuration("merge_across_nodes=0", "fair"), across=False, learns=False)
WAYS = (KSM, FAIR, BY_NODE, *(replicas(percent) for percent in BUDGETS))
# Where what is hot differs by tenant or time.
SOME = (KSM, FAIR, replicas(5))
OTHERS = (
    (use.ZIPF, 0),
    (use.APART, 5),
    (use.MOVED, 5),
    (use.RELOCATED, 5),
    (use.SETTLED, 5),
    (use.IDLE, 5),
)


def cases(extent: Extent) -> Iterator[tuple[str, int, Way]]:
    if extent.name == "quick":
        yield from ((use.EQUAL, 5, way) for way in SOME)
        yield from ((use.APART, 5, way) for way in (KSM, FAIR))
        return
    for percent in HOT:
        yield from ((use.EQUAL, percent, way) for way in WAYS)
    for kind, percent in OTHERS:
        yield from ((kind, percent, way) for way in SOME)


def one(extent: Extent, nodes: int, kind: str, hot: int, way: Way) -> Trial:
    planned = trial(
        extent,
        use.NAME,
        way.configuration,
        places(list(range(nodes))),
        kib=extent.kib // PART_OF_DATA,
    )
    wanted: Use = {
        "kind": kind,
        "hot_percent": hot,
        "budget_percent": way.budget_percent,
        "across": way.across,
        "learns": way.learns,
    }
    return {**planned, "use": wanted}


def parts(extent: Extent) -> list[Part]:
    """A boot for each number of nodes; in small two are enough."""
    return [
        Part(
            f"replicas-{nodes}",
            Machine(nodes, NODE_MIB),
            CACHES,
            [one(extent, nodes, *case) for case in cases(extent)],
        )
        for nodes in (NODES[:1] if extent.name == "quick" else NODES)
    ]
