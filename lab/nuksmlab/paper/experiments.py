# SPDX-License-Identifier: GPL-2.0-only
"""All experiments, in the order of the report."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from nuksmlab.paper import runner
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
from nuksmlab.paper.runner import Complete
from nuksmlab.paper.scanning import experiment as scanning
from nuksmlab.paper.scanning import section as scanning_section
from nuksmlab.paper.section import Section, all_measured, of_model
from nuksmlab.paper.trial import Result
from nuksmlab.paper.where import Emulation, Host, Where


@dataclass
class Gathered:
    """What there is of an experiment, for the report."""

    section: Section | None
    kept: dict[str, Complete]
    missing: list[str]


def what_is_kept(
    raw: Path, names: Iterable[str], emulated: Iterable[str], where: Where
) -> Gathered:
    """Of boots that have no trials; their section is still to be made.

    Those named as `emulated` are run in the emulated machine only.
    """
    elsewhere = () if isinstance(where, Emulation) else tuple(emulated)
    done = {name: runner.completed(raw / name) for name in names}
    kept = {name: one for name, one in done.items() if one}
    missing = [
        f"{name} (not with HOST=1)" if name in elsewhere else name
        for name in done
        if name not in kept
    ]
    return Gathered(None, kept, missing)


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
        found = Gathered(None, {}, [])
        results: list[Result] = []
        for part in self.parts(size):
            done = runner.completed(raw / part.name)
            if done and not runner.is_of(part, raw / part.name):
                found.missing.append(f"{part.name} (other trials were run)")
            elif done:
                found.kept[part.name] = done
                results += runner.read(raw / part.name)
                if not runner.is_current(part, where, done):
                    older = f"{part.name} (what is shown is of an older state)"
                    found.missing.append(older)
            else:
                lacking = where.lacks(part)
                name = f"{part.name} ({lacking})" if lacking else part.name
                found.missing.append(name)
        if results:
            section = self.section(results, hardware)
            timed = isinstance(where, Host)
            found.section = all_measured(section) if timed else of_model(section)
        return found


class Pressure:
    """Figure 8, under User-Mode Linux: wherever it is run."""

    name = pressure.NAME

    def jobs(self, raw: Path, size: Extent, where: Where) -> list[Job]:  # noqa: ARG002
        return [Job(self.name, partial(pressure.run, size, raw / self.name), True)]

    def gather(
        self,
        raw: Path,
        size: Extent,  # noqa: ARG002
        where: Where,
        hardware: Hardware,  # noqa: ARG002
    ) -> Gathered:
        found = what_is_kept(raw, [self.name], (), where)
        if found.kept:
            observed = pressure.read(raw / self.name)
            path = f"raw/{self.name}/observed.jsonl"
            found.section = pressure_section.section(observed, path)
        return found


class Merging:
    """KSM's benchmarks of 2009: under User-Mode Linux, and in an emulated machine."""

    name = merging.NAME

    def jobs(self, raw: Path, size: Extent, where: Where) -> list[Job]:
        copies = partial(merging.run_copies, size, raw / merging.COPIES)
        images = partial(merging.run_images, size, raw / merging.IMAGES)
        planned = [
            Job(merging.COPIES, copies, timed=True),
            Job(merging.IMAGES, images, timed=True),
        ]
        if isinstance(where, Emulation):
            guests = partial(
                merging.run_guests, size, where.image, raw / merging.GUESTS
            )
            planned.append(Job(merging.GUESTS, guests, timed=True))
        return planned

    def gather(
        self,
        raw: Path,
        size: Extent,  # noqa: ARG002
        where: Where,
        hardware: Hardware,  # noqa: ARG002
    ) -> Gathered:
        found = what_is_kept(raw, merging_section.PARTS, (merging.GUESTS,), where)
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

    def jobs(self, raw: Path, size: Extent, where: Where) -> list[Job]:
        if not isinstance(where, Emulation):
            return []
        work = partial(consolidation.run, size, raw, where.image)
        return [Job(self.name, work, timed=True)]

    def gather(
        self,
        raw: Path,
        size: Extent,
        where: Where,
        hardware: Hardware,  # noqa: ARG002
    ) -> Gathered:
        plans = consolidation_plan.plans(size)
        found = what_is_kept(raw, plans, plans, where)
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

    def jobs(self, raw: Path, size: Extent, where: Where) -> list[Job]:
        if not isinstance(where, Emulation):
            return []
        work = partial(scanning.run, size, where.image, raw / self.name)
        return [Job(self.name, work, timed=False)]

    def gather(
        self,
        raw: Path,
        size: Extent,  # noqa: ARG002
        where: Where,
        hardware: Hardware,
    ) -> Gathered:
        found = what_is_kept(raw, [self.name], [self.name], where)
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
