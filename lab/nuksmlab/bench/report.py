# SPDX-License-Identifier: GPL-2.0-only
"""What is kept of an experiment in build/bench, and what is made from that.

NAME.json       the results
NAME.host.json  where they were measured
NAME/           the raw samples, boot by boot
NAME.md         the table
NAME.png        the picture
"""

import json
from collections.abc import Mapping, Sequence
from typing import cast

from nuksmlab import paths
from nuksmlab.bench import figures, neighbour, picture, steady, table
from nuksmlab.bench.figures import Figures
from nuksmlab.bench.host import Host
from nuksmlab.bench.neighbour import Neighbour
from nuksmlab.bench.records import Result
from nuksmlab.bench.steady import Arrival, Steady

OUTPUT = paths.BUILD / "bench"


def write_host(name: str, host: Host) -> None:
    (OUTPUT / f"{name}.host.json").write_text(json.dumps(host, indent=1) + "\n")


def write_results(name: str, results: Sequence[Mapping[str, object]]) -> None:
    (OUTPUT / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")


def make(name: str) -> str:
    """Writes table and picture, and returns the table."""
    results = cast(list[Result], json.loads((OUTPUT / f"{name}.json").read_text()))
    host = cast(Host, json.loads((OUTPUT / f"{name}.host.json").read_text()))
    measured = Figures(results)
    goals = [] if name == "trees" else figures.goals(measured)
    text = table.render(measured, host, goals)
    (OUTPUT / f"{name}.md").write_text(text)
    picture.draw(measured, OUTPUT / f"{name}.png")
    return text


def arrival_name(name: str) -> str:
    """Of the results that are measured with those of `name`, steady or the like."""
    return name.replace("steady", "arrival", 1)


def make_steady(name: str) -> str:
    """Writes the tables of NAME.json and of the arrivals, and returns them."""
    measured = cast(list[Steady], json.loads((OUTPUT / f"{name}.json").read_text()))
    arrivals = cast(
        list[Arrival], json.loads((OUTPUT / f"{arrival_name(name)}.json").read_text())
    )
    host = cast(Host, json.loads((OUTPUT / f"{name}.host.json").read_text()))
    text = steady.render(measured, arrivals, host)
    (OUTPUT / f"{name}.md").write_text(text)
    return text


def make_neighbour(name: str) -> str:
    """Writes the table of NAME.json, and returns it."""
    measured = cast(list[Neighbour], json.loads((OUTPUT / f"{name}.json").read_text()))
    where = cast(Host, json.loads((OUTPUT / f"{name}.host.json").read_text()))
    text = neighbour.render(measured, where)
    (OUTPUT / f"{name}.md").write_text(text)
    return text


def make_any(name: str) -> str:
    """What an experiment's name begins with says which it is."""
    makers = {"steady": make_steady, "neighbour": make_neighbour}
    return next((m for kind, m in makers.items() if name.startswith(kind)), make)(name)
