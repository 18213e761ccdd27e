# SPDX-License-Identifier: GPL-2.0-only
"""Virtual machines that do not what they should."""

import signal
import subprocess

import pytest

from nuksmlab import virtual, workload


def test_one_that_hangs_is_killed_and_what_it_did_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(virtual, "ANSWER_SECONDS", 0.0)
    hangs = subprocess.Popen(["sleep", "infinity"], text=True)
    with virtual.in_time(hangs):
        assert hangs.wait() == -signal.SIGKILL
    assert "does not answer:\nsleep: " in capsys.readouterr().out


def test_one_that_ends_in_the_middle_of_an_answer_says_how() -> None:
    ends = subprocess.Popen(
        ["sh", "-c", """echo booted; printf '{"'; exit 3"""],
        stdout=subprocess.PIPE,
        text=True,
    )
    with pytest.raises(workload.WorkloadError, match=r"ended with 3.*\n.*booted\n{\""):
        workload.read_answer(ends, "skewed 0")
