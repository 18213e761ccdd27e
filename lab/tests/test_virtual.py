# SPDX-License-Identifier: GPL-2.0-only
"""Virtual machines that do not what they should."""

import signal
import subprocess

import pytest

from nuksmlab import virtual


def test_one_that_hangs_is_killed_and_what_it_did_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(virtual, "ANSWER_SECONDS", 0.0)
    hangs = subprocess.Popen(["sleep", "infinity"], text=True)
    with virtual.in_time(hangs):
        assert hangs.wait() == -signal.SIGKILL
    assert "does not answer:\nsleep: " in capsys.readouterr().out
