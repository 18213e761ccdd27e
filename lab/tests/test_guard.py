# SPDX-License-Identifier: GPL-2.0-only
"""What is left of a command when whoever started it is gone: nothing."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nuksmlab import guard, wait

# Starts a command under guard, and says when it runs; the command has a child in
# another session, and tidies up when it is told to end.
STARTER = """
import subprocess, sys, time
from nuksmlab import guard
guard.unwind_when_terminated()
process = guard.start(["sh", "-c", sys.argv[2]], grace=float(sys.argv[1]))
time.sleep(1000)
"""
COMMAND = """
trap 'sleep 0.3; echo >"{place}/tidied"; exit' TERM
setsid sleep 1000 & echo $! $$ >"{place}/new"; mv "{place}/new" "{place}/pids"
wait
"""


def is_gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL]
)
@pytest.mark.parametrize("grace", [0, 600])
def test_it_ends_with_its_starter(
    tmp_path: Path, number: signal.Signals, grace: int
) -> None:
    command = COMMAND.format(place=tmp_path)
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(grace), command], stderr=subprocess.DEVNULL
    )
    pids = tmp_path / "pids"
    wait.until(pids.exists, lambda: "the command")
    starter.send_signal(number)
    starter.wait()
    for pid in map(int, pids.read_text().split()):
        wait.until(lambda pid=pid: is_gone(pid), lambda: "the end")  # type: ignore[misc]
    assert (tmp_path / "tidied").exists() == bool(grace)


def test_what_a_command_leaves_behind_is_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    process = guard.start(["sh", "-c", f"sleep 1000 & echo $! >{pid}"], grace=0)
    assert process.wait() == 0
    assert is_gone(int(pid.read_text()))


def test_the_status_is_the_commands() -> None:
    assert guard.start(["sh", "-c", "exit 7"], grace=0).wait() == 7
    assert guard.start(["sh", "-c", "kill -9 $$"], grace=0).wait() == 137


def test_nohup_is_respected() -> None:
    code = "import signal; from nuksmlab import guard; guard.unwind_when_terminated();"
    code += "print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
    asked = ["nohup", sys.executable, "-c", code]
    said = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert said.stdout == "True\n"
