# SPDX-License-Identifier: GPL-2.0-only
"""What looks cost virtual machines whose pages are looked at: plan, results, table.

Two virtual machines by KVM, one on each node of an emulated machine, have the same
data, merged, and use all of it. In turns nobody looks, looks take a part of a CPU, and
there are replicas, too. What is measured is how long both take for as many operations.

A look is the same however rare it is, and takes some tenths of a second here. So looks
may take twenty times what they may by default, for some to be in each turn, and of what
they cost as much is the default's as it is of the time that they took.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from nuksmlab.bench import estimate
from nuksmlab.bench.estimate import Estimate
from nuksmlab.bench.goals import Goal, Report, listing
from nuksmlab.bench.host import Host
from nuksmlab.bench.steady import spread, turned
from nuksmlab.bench.table import markdown
from nuksmlab.machine import Machine
from nuksmlab.workload import EndedError

MACHINE = Machine(2, 768)
WORKLOAD = "skewed"
HOT_PERCENT = 5
NONE, LOOKS, REPLICAS = "no looks", "looks", "looks, replicas"
CONFIGS = (NONE, LOOKS, REPLICAS)
DEFAULT_PERMILLE = 5
TIMES = 20  # may they take what they may by default
PERMILLE = {config: DEFAULT_PERMILLE * TIMES for config in CONFIGS} | {NONE: 0}
BUDGET_PERCENT = {NONE: 0, LOOKS: 0, REPLICAS: 5}
MOST_COST = 1.0  # percent
SHARPNESS = 0.2  # percent; a mean with a larger error says little of that
# Boots in which a virtual machine was reset; more, and something else is wrong.
MOST_ENDED = 3


class Run(TypedDict):
    config: str
    kib: int  # of data, of each virtual machine
    operations: int  # of each
    repetition: int
    turn: int
    boot: int  # in which it is made


class Took(TypedDict):
    """An entry of looks.json: what both took for their operations."""

    run: Run
    seconds: float
    look_us: int  # of CPU time, meanwhile
    replicas: int  # in the end


@dataclass(frozen=True)
class Extent:
    kib: int
    operations: int
    turns: int  # of all configurations in each boot
    repetitions: int


# Short turns: what else the host does changes within seconds.
FULL = Extent(16384, 30_000_000, 40, 3)
QUICK = Extent(16384, 30_000_000, 2, 1)


def runs(extent: Extent, repetition: int) -> list[Run]:
    """For one boot: configurations take turns at being the first."""
    return [
        {
            "config": config,
            "kib": extent.kib,
            "operations": extent.operations,
            "repetition": repetition,
            "turn": turn,
            "boot": repetition,
        }
        for turn in range(extent.turns)
        for config in turned(CONFIGS, turn + repetition)
    ]


def was_reset(error: EndedError) -> bool:
    """Did the processor reset a virtual machine, whose kernel said nothing?

    QEMU's emulation can do that (docs/stress.md). One that hangs, dies with a word, or
    says what it must not, may do so because of the engine.
    """
    return error.status == 0 and "panic" not in error.said


def whole_turns(results: Iterable[Took]) -> list[Took]:
    """Of one boot, the turns that have all configurations."""
    turns: dict[int, list[Took]] = {}
    for one in results:
        turns.setdefault(one["run"]["turn"], []).append(one)
    return [one for turn in turns.values() if len(turn) == len(CONFIGS) for one in turn]


def of_config(results: Sequence[Took], config: str) -> list[Took]:
    return [one for one in results if one["run"]["config"] == config]


def permille(results: Sequence[Took], config: str) -> float:
    """Of a CPU, that looks took."""
    mine = of_config(results, config)
    return (
        sum(one["look_us"] for one in mine) / sum(one["seconds"] for one in mine) / 1e3
    )


def more(results: Sequence[Took], config: str) -> Estimate:
    """How much longer operations take by default, against the same turn without."""
    turns: dict[tuple[int, int], dict[str, float]] = {}
    for one in results:
        run = one["run"]
        turn = turns.setdefault((run["repetition"], run["turn"]), {})
        turn[run["config"]] = one["seconds"]
    cost = estimate.more((turn[NONE], turn[config]) for turn in turns.values())
    times = permille(results, config) / DEFAULT_PERMILLE or 1.0
    return Estimate(cost.mean / times, cost.error / times)


def goals(results: Sequence[Took]) -> list[Goal]:
    cost = more(results, LOOKS)
    took = permille(results, LOOKS)
    may = PERMILLE[LOOKS]
    least = min(one["look_us"] for one in of_config(results, LOOKS))
    made = min(one["replicas"] for one in of_config(results, REPLICAS))
    return [
        Goal(
            f"looks by default: operations take longer, in %, at most {MOST_COST}",
            cost.mean,
            cost.mean <= MOST_COST,
        ),
        Goal(
            f"looks by default: the standard error of that, at most {SHARPNESS}",
            cost.error,
            cost.error <= SHARPNESS,
        ),
        Goal(f"looks took, ‰ of a CPU, at most {may}", took, took <= may),
        Goal(
            "looks in each turn that is to have some, µs, at least 1", least, least >= 1
        ),
        Goal("replicas in each turn that is to have some, at least 1", made, made >= 1),
    ]


def table(results: Sequence[Took]) -> str:
    rows = []
    for config in CONFIGS:
        mine = of_config(results, config)
        rows.append(
            [
                config,
                spread([one["seconds"] for one in mine]),
                "" if config == NONE else str(more(results, config)),
                f"{permille(results, config):.1f}",
                spread([one["replicas"] for one in mine], 0),
            ]
        )
    head = ["", "s", "longer by default, %", "looks, ‰ of a CPU", "replicas"]
    return markdown(head, rows)


def render(results: Sequence[Took], host: Host) -> Report:
    reached = goals(results)
    boots = max(one["run"]["boot"] for one in results) + 1
    ended = boots - len({one["run"]["repetition"] for one in results})
    turns = len(results) // len(CONFIGS)
    run = results[0]["run"]
    parts = (
        table(results),
        listing(reached),
        f"Measured: {turns} turns in {boots} boots, {ended} of which ended in the "
        "middle, as a virtual machine was reset; medians (least-most), each of "
        f"{run['operations']} operations by each of two virtual machines with "
        f"{run['kib']} KiB; how much longer, by the part of it that looks take by "
        f"default, {DEFAULT_PERMILLE} ‰, geometric mean ± standard error; an "
        f"emulated machine on {host['processor']}, Linux {host['kernel']}, load "
        f"{host['load_before']:.1f} before.\n",
    )
    return Report("\n\n".join(parts), reached)
