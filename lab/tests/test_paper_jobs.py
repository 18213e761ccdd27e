# SPDX-License-Identifier: GPL-2.0-only
"""Jobs that fail, and jobs that measure time."""

from functools import partial
from pathlib import Path

from nuksmlab.machine import MachineError
from nuksmlab.paper.jobs import Job, run_all


def note(path: Path) -> None:
    """Fails where it meets the traces of an unfinished other."""
    busy = path.with_name("busy")
    busy.touch(exist_ok=False)
    path.touch()
    busy.unlink()


def fail() -> None:
    raise MachineError("made up")


def test_one_that_fails_does_not_keep_the_others_from_being_run(tmp_path: Path) -> None:
    for timed in (False, True):
        path = tmp_path / f"timed-{timed}"
        jobs = [Job("bad", fail, timed), Job("good", partial(note, path), timed)]
        assert not run_all(jobs, 1)
        assert path.exists()


def test_what_measures_time_comes_first_and_alone(tmp_path: Path) -> None:
    jobs = [
        Job("counts", partial((tmp_path / "timed-1").rename, tmp_path / "x"), False),
        Job("times", partial(note, tmp_path / "timed-1"), True),
        Job("times, too", partial(note, tmp_path / "timed-2"), True),
    ]
    assert run_all(jobs, 2)
