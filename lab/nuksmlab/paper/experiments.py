# SPDX-License-Identifier: GPL-2.0-only
"""All experiments, in the order of the report."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from nuksmlab.paper import kept, runner
from nuksmlab.paper.busy import plan as busy_plan
from nuksmlab.paper.busy import section as busy_section
from nuksmlab.paper.consolidation import experiment as consolidation
from nuksmlab.paper.consolidation import plan as consolidation_plan
from nuksmlab.paper.consolidation import section as consolidation_section
from nuksmlab.paper.extent import Extent, Part
from nuksmlab.paper.fairness import plan as fairness_plan
from nuksmlab.paper.fairness import section as fairness_section
from nuksmlab.paper.guests import plan as guests_plan
from nuksmlab.paper.guests import section as guests_section
from nuksmlab.paper.jobs import Job
from nuksmlab.paper.kept import Boots, Gathered
from nuksmlab.paper.merging import experiment as merging
from nuksmlab.paper.merging import section as merging_section
from nuksmlab.paper.model import Hardware
from nuksmlab.paper.nodes import plan as nodes_plan
from nuksmlab.paper.nodes import section as nodes_section
from nuksmlab.paper.pressure import experiment as pressure
from nuksmlab.paper.pressure import section as pressure_section
from nuksmlab.paper.priority import plan as priority_plan
from nuksmlab.paper.priority import section as priority_section
from nuksmlab.paper.replicas import plan as replicas_plan
from nuksmlab.paper.replicas import section as replicas_section
from nuksmlab.paper.scanning import experiment as scanning
from nuksmlab.paper.scanning import section as scanning_section
from nuksmlab.paper.section import Section, all_measured, of_model
from nuksmlab.paper.trial import Result
from nuksmlab.paper.where import Emulation, Host, Where


class Experiment(Protocol):
    @property
    def name(self) -> str: ...

    def jobs(self, raw: Path, size: Extent, where: Where) -> list[Job]: ...

    def gather(
        self, raw: Path, size: Extent, where: Where, hardware: Hardware
    ) -> Gathered: ...


@dataclass(frozen=True)
class Trials:
    """An experiment that consists of trials on nodes."""

    name: str
    parts: Callable[[Extent], list[Part]]
    section: Callable[[Sequence[Result], Hardware], Section]

    def jobs(self, raw: Path, size: Extent, where: Where) -> list[Job]:
        return [
            Job(
                part.name,
                partial(runner.run, part, where, raw / part.name),
                timed=isinstance(where, Host),
            )
            for part in self.parts(size)
        ]

    def gather(
        self, raw: Path, size: Extent, where: Where, hardware: Hardware
    ) -> Gathered:
        found = Gathered()
        for part in self.parts(size):
            planned = partial(runner.boot_of, part, where)
            found.look_for(raw / part.name, planned, where.lacks(part))
        results = [one for name in found.kept for one in runner.read(raw / name)]
        if results:
            section = self.section(results, hardware)
            timed = isinstance(where, Host)
            found.section = all_measured(section) if timed else of_model(section)
        return found


class Pressure:
    """Figure 8, under User-Mode Linux: wherever it is run."""

    name = pressure.NAME

    def boots(self, size: Extent) -> Boots:
        return {self.name: partial(pressure.planned, size)}

    def jobs(self, raw: Path, size: Extent, where: Where) -> list[Job]:  # noqa: ARG002
        return kept.jobs(raw, self.boots(size), timed=True)

    def gather(
        self,
        raw: Path,
        size: Extent,
        where: Where,  # noqa: ARG002
        hardware: Hardware,  # noqa: ARG002
    ) -> Gathered:
        found = kept.gather(raw, [self.name], self.boots(size))
        if found.kept:
            observed = pressure.read(raw / self.name)
            path = f"raw/{self.name}/observed.jsonl"
            found.section = pressure_section.section(observed, path)
        return found


class Merging:
    """KSM's benchmarks of 2009: under User-Mode Linux, and in an emulated machine."""

    name = merging.NAME

    def boots(self, size: Extent, where: Where) -> Boots:
        boots: Boots = {
            merging.COPIES: partial(merging.planned_copies, size),
            merging.IMAGES: partial(merging.planned_images, size),
        }
        if not isinstance(where, Emulation):
            return boots
        guests = partial(merging.planned_guests, size, where.image)
        return {**boots, merging.GUESTS: guests}

    def jobs(self, raw: Path, size: Extent, where: Where) -> list[Job]:
        return kept.jobs(raw, self.boots(size, where), timed=True)

    def gather(
        self,
        raw: Path,
        size: Extent,
        where: Where,
        hardware: Hardware,  # noqa: ARG002
    ) -> Gathered:
        found = kept.gather(raw, merging_section.PARTS, self.boots(size, where))
        parts = [
            merging_section.PARTS[name](
                merging.read(raw / name), done, f"raw/{name}/observed.jsonl"
            )
            for name, done in found.kept.items()
        ]
        if parts:
            found.section = merging_section.section(parts)
        return found


class Consolidation:
    """Virtual machines with a user space: in the emulated machine only."""

    name = consolidation.NAME

    def boots(self, raw: Path, size: Extent, where: Where) -> Boots:
        if not isinstance(where, Emulation):
            return {}
        return {
            name: partial(consolidation.planned, plan, raw, where.image)
            for name, plan in consolidation_plan.plans(size).items()
        }

    def jobs(self, raw: Path, size: Extent, where: Where) -> list[Job]:
        return kept.jobs(raw, self.boots(raw, size, where), timed=True)

    def gather(
        self,
        raw: Path,
        size: Extent,
        where: Where,
        hardware: Hardware,  # noqa: ARG002
    ) -> Gathered:
        names = consolidation_plan.plans(size)
        found = kept.gather(raw, names, self.boots(raw, size, where))
        results = [
            result
            for name, done in found.kept.items()
            for result in consolidation.read(raw / name, done["expected"])
        ]
        if results:
            found.section = consolidation_section.section(results)
        return found


class Scanning:
    """ksmd's own work: in the emulated machine only, where it is counted."""

    name = scanning.NAME

    def boots(self, size: Extent, where: Where) -> Boots:
        if not isinstance(where, Emulation):
            return {}
        return {self.name: partial(scanning.planned, size, where.image)}

    def jobs(self, raw: Path, size: Extent, where: Where) -> list[Job]:
        return kept.jobs(raw, self.boots(size, where), timed=False)

    def gather(
        self, raw: Path, size: Extent, where: Where, hardware: Hardware
    ) -> Gathered:
        found = kept.gather(raw, [self.name], self.boots(size, where))
        if found.kept:
            results = list(scanning.read(raw / self.name))
            found.section = scanning_section.section(results, hardware)
        return found


TRIALS = (
    Trials("fairness", fairness_plan.parts, fairness_section.section),
    Trials("priority", priority_plan.parts, priority_section.section),
    Trials("nodes", nodes_plan.parts, nodes_section.section),
    Trials("guests", guests_plan.parts, guests_section.section),
    Trials("busy", busy_plan.parts, busy_section.section),
    Trials("replicas", replicas_plan.parts, replicas_section.section),
)
ALL: tuple[Experiment, ...] = (
    *TRIALS,
    Pressure(),
    Merging(),
    Scanning(),
    Consolidation(),
)


def wanted(name: str | None, size: Extent) -> Iterator[Experiment]:
    """The one of that name, or all but those that have to be asked for."""
    for experiment in ALL:
        by_itself = experiment.name not in size.by_name
        if name == experiment.name or (name is None and by_itself):
            yield experiment
