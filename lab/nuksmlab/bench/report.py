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
from nuksmlab.bench import domains, figures, looks, neighbour, picture, steady, table
from nuksmlab.bench.domains import Cost
from nuksmlab.bench.figures import Figures
from nuksmlab.bench.goals import Report
from nuksmlab.bench.host import Host
from nuksmlab.bench.looks import Took
from nuksmlab.bench.neighbour import Neighbour
from nuksmlab.bench.records import Result
from nuksmlab.bench.steady import Arrival, New, Steady

OUTPUT = paths.BUILD / "bench"


def write_host(name: str, host: Host) -> None:
    (OUTPUT / f"{name}.host.json").write_text(json.dumps(host, indent=1) + "\n")


def write_results(name: str, results: Sequence[Mapping[str, object]]) -> None:
    (OUTPUT / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")


def make(name: str) -> Report:
    """Writes table and picture, and returns the table."""
    results = cast(list[Result], read_results(name))
    host = cast(Host, read_results(f"{name}.host"))
    measured = Figures(results)
    goals = [] if name == "trees" else figures.goals(measured)
    text = table.render(measured, host, goals)
    (OUTPUT / f"{name}.md").write_text(text)
    picture.draw(measured, OUTPUT / f"{name}.png")
    return Report(text, goals)


def beside_name(name: str, kind: str) -> str:
    """Of the results that are measured with those of `name`, steady or the like."""
    return name.replace("steady", kind, 1)


def read_results(name: str) -> object:
    return json.loads((OUTPUT / f"{name}.json").read_text())


def make_steady(name: str) -> Report:
    """Writes the tables of NAME.json and of what was measured with it."""
    made = steady.render(
        cast(list[New], read_results(beside_name(name, "new"))),
        cast(list[Steady], read_results(name)),
        cast(list[Arrival], read_results(beside_name(name, "arrival"))),
        cast(Host, read_results(f"{name}.host")),
    )
    (OUTPUT / f"{name}.md").write_text(made.text)
    return made


def make_neighbour(name: str) -> Report:
    """Writes the table of NAME.json, and returns it."""
    measured = cast(list[Neighbour], read_results(name))
    made = neighbour.render(measured, cast(Host, read_results(f"{name}.host")))
    (OUTPUT / f"{name}.md").write_text(made.text)
    return made


def make_domains(name: str) -> Report:
    """Writes the table of NAME.json."""
    results = cast(list[Cost], read_results(name))
    made = domains.render(results, cast(Host, read_results(f"{name}.host")))
    (OUTPUT / f"{name}.md").write_text(made.text)
    return made


def make_looks(name: str) -> Report:
    """Writes the table of NAME.json."""
    results = cast(list[Took], read_results(name))
    made = looks.render(results, cast(Host, read_results(f"{name}.host")))
    (OUTPUT / f"{name}.md").write_text(made.text)
    return made


def make_any(name: str) -> Report:
    """What an experiment's name begins with says which it is."""
    makers = {
        "steady": make_steady,
        "neighbour": make_neighbour,
        "domains": make_domains,
        "looks": make_looks,
    }
    return next((m for kind, m in makers.items() if name.startswith(kind)), make)(name)
