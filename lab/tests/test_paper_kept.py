# SPDX-License-Identifier: GPL-2.0-only
"""What was run before, of this engine or another one, and what the report has of it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nuksmlab import accelerator, counter, kernels, paths
from nuksmlab.paper import experiments, extent, model
from nuksmlab.paper.__main__ import make_report
from nuksmlab.paper.consolidation import experiment as consolidation
from nuksmlab.paper.experiments import Experiment
from nuksmlab.paper.extent import QUICK, Extent
from nuksmlab.paper.merging import experiment as merging
from nuksmlab.paper.merging import section as merging_section
from nuksmlab.paper.pressure import experiment as pressure
from nuksmlab.paper.pressure import section as pressure_section
from nuksmlab.paper.scanning import experiment as scanning
from nuksmlab.paper.scanning import section as scanning_section
from nuksmlab.paper.section import Section
from nuksmlab.paper.where import Emulation

HARDWARE = model.read_hardware(model.PAPERS_MACHINE)
OLDER = "what is shown is of an older state"
BOOTED = (
    experiments.Pressure(),
    experiments.Merging(),
    experiments.Scanning(),
    experiments.Consolidation(),
)


def name(experiment: Experiment) -> str:
    return experiment.name


class Lab:
    """Its kernels and programs are empty files; a boot observes nothing."""

    def __init__(self, folder: Path) -> None:
        self.raw = folder / "raw"
        self.engine = self.program("engine")
        self.where = Emulation(self.engine)

    def program(self, called: str) -> Path:
        path = self.raw.with_name(called)
        path.touch()
        return path

    def boot(self, *arguments: object) -> None:
        kept = arguments[-1]
        assert isinstance(kept, Path)
        for observed in ("observed.jsonl", counter.COUNTS):
            (kept / observed).write_text("")

    def user_space(self, path: Path) -> int:
        path.write_text("")
        return 1

    def run(self, experiment: Experiment) -> None:
        for job in experiment.jobs(self.raw, QUICK, self.where):
            job.run()

    def missing(self, experiment: Experiment, size: Extent = QUICK) -> list[str]:
        return experiment.gather(self.raw, size, self.where, HARDWARE).missing


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    for program in ("TENANT", "BOUND", "COUNTER", "NUKSM", "NUKSM_RELEASE", "WORKLOAD"):
        (tmp_path / program).touch()
        monkeypatch.setattr(paths, program, tmp_path / program)
    lab = Lab(tmp_path)
    lab.raw.mkdir()
    programs = (paths.BOUND, paths.NUKSM_RELEASE)
    monkeypatch.setattr(kernels, "build", lambda *_: lab.engine)
    monkeypatch.setattr(kernels, "find", lambda _: lab.program("stock"))
    monkeypatch.setattr(accelerator, "qemu_version", lambda: "0")
    monkeypatch.setattr(consolidation, "PROGRAMS", programs)
    monkeypatch.setattr(consolidation, "write_user_space", lab.user_space)
    monkeypatch.setattr(merging, "run_here", lambda *_: "abc")
    for module, boot in (
        (pressure, "boot"),
        (merging, "boot_uml"),
        (merging, "boot_images"),
        (merging, "boot_guests"),
        (scanning, "boot"),
        (consolidation, "boot"),
    ):
        monkeypatch.setattr(module, boot, lab.boot)
    nothing: Callable[..., Section] = lambda *_: Section("", [])  # noqa: E731
    for shown in (pressure_section, merging_section, scanning_section):
        monkeypatch.setattr(shown, "section", nothing)
    parts = dict.fromkeys(merging_section.PARTS, nothing)
    monkeypatch.setattr(merging_section, "PARTS", parts)
    return lab


@pytest.mark.parametrize("experiment", BOOTED, ids=name)
def test_what_another_engine_found_is_not_taken_for_this_ones(
    experiment: Experiment, lab: Lab
) -> None:
    lab.run(experiment)
    assert lab.missing(experiment) == []
    lab.engine.write_text("changed")
    missing = lab.missing(experiment)
    assert missing
    assert all(f"({OLDER})" in one for one in missing)
    lab.run(experiment)
    assert lab.missing(experiment) == []


@pytest.mark.parametrize("experiment", BOOTED, ids=name)
def test_what_another_plan_found_is_not_shown(experiment: Experiment, lab: Lab) -> None:
    lab.run(experiment)
    for kept in lab.raw.glob("*/plan.json"):
        kept.write_text(json.dumps([]))
    found = experiment.gather(lab.raw, QUICK, lab.where, HARDWARE)
    assert found.section is None
    assert found.kept == {}
    assert all("(other trials were run)" in one for one in found.missing)


@pytest.mark.parametrize("experiment", BOOTED, ids=name)
def test_what_was_not_run_needs_no_kernel_to_say_so(
    experiment: Experiment, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "build", pytest.fail)
    assert lab.missing(experiment, extent.FULL)


def test_who_counts_the_goals_is_told_what_is_of_another_engine(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.run(experiments.Pressure())
    lab.engine.write_text("changed")
    make_report(lab.raw.parent, QUICK, lab.where, HARDWARE)
    (said,) = [one for one in capsys.readouterr().out.splitlines() if "not run" in one]
    assert f"pressure ({OLDER}), " in said
    assert "fairness-btree, " in said


def test_what_is_kept_is_shown_where_its_kernel_cannot_be_built(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.run(experiments.Pressure())

    def cannot(*_: object) -> Path:
        raise kernels.KernelError("no compiler")

    monkeypatch.setattr(kernels, "build", cannot)
    found = experiments.Pressure().gather(lab.raw, QUICK, lab.where, HARDWARE)
    assert found.section
    assert found.missing == [
        "pressure (what is shown may be of an older state: no compiler)"
    ]
