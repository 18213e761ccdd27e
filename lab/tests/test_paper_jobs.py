# SPDX-License-Identifier: GPL-2.0-only
"""Jobs that fail, and jobs that measure time."""

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from nuksmlab import wait
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


# Two at once of four jobs, each with a command that would go on for long.
JOBS = """
import sys
from functools import partial
from pathlib import Path
from nuksmlab import guard
from nuksmlab.paper import jobs
def work(name):
    place = Path(sys.argv[1])
    said = f"echo $$ >{place}/new-{name}; mv {place}/new-{name} {place}/{name}"
    process = guard.start(["sh", "-c", f"{said}; exec sleep 1000"], grace=0)
    try:
        process.wait()
    finally:
        guard.end(process)
guard.unwind_when_terminated()
jobs.run_all([jobs.Job(str(n), partial(work, str(n)), False) for n in range(4)], 2)
"""


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL]
)
def test_jobs_end_with_their_parent_and_no_other_begins(
    tmp_path: Path, number: signal.Signals
) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", JOBS, tmp_path], stderr=subprocess.DEVNULL
    )
    begun = [tmp_path / name for name in ("0", "1")]
    wait.until(lambda: all(file.exists() for file in begun), lambda: "two jobs")
    parent.send_signal(number)
    parent.wait()
    for file in begun:
        stat = Path(f"/proc/{int(file.read_text())}")
        wait.until(lambda stat=stat: not stat.exists(), lambda: "the end")  # type: ignore[misc]
    assert not (tmp_path / "2").exists()
