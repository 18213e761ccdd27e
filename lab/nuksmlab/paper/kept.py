# SPDX-License-Identifier: GPL-2.0-only
"""What there is of an experiment's boots, and of what state."""

import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from nuksmlab.paper import runner
from nuksmlab.paper.jobs import FAILURES, Job
from nuksmlab.paper.runner import Boot, Complete
from nuksmlab.paper.section import Section

# By the name of its folder. Who asks for one may have to wait for a kernel's build.
Boots = Mapping[str, Callable[[], Boot]]


@dataclass
class Gathered:
    """For the report."""

    section: Section | None = None
    kept: dict[str, Complete] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def look_for(
        self, kept: Path, planned: Callable[[], Boot], lacking: str | None = None
    ) -> None:
        """Another plan's is not shown; what is of an older state is, and named."""
        done = runner.completed(kept)
        if done is None:
            self.miss(kept.name, lacking)
            return
        try:
            boot = planned()
        except (*FAILURES, OSError, subprocess.CalledProcessError) as error:
            self.kept[kept.name] = done
            self.miss(kept.name, f"what is shown may be of an older state: {error}")
            return
        if not runner.is_of(boot, kept):
            self.miss(kept.name, "other trials were run")
            return
        self.kept[kept.name] = done
        if done["inputs"] != boot.facts.inputs:
            self.miss(kept.name, "what is shown is of an older state")

    def miss(self, name: str, why: str | None) -> None:
        self.missing.append(f"{name} ({why})" if why else name)


def run(planned: Callable[[], Boot], kept: Path) -> None:
    runner.run_once(kept, planned())


def jobs(raw: Path, boots: Boots, *, timed: bool) -> list[Job]:
    return [
        Job(name, partial(run, planned, raw / name), timed)
        for name, planned in boots.items()
    ]


def gather(raw: Path, names: Iterable[str], boots: Boots) -> Gathered:
    """Of all names: those without a boot are run in the emulated machine only."""
    found = Gathered()
    for name in names:
        if name in boots:
            found.look_for(raw / name, boots[name])
        else:
            found.miss(name, "not with HOST=1")
    return found
