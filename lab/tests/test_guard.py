# SPDX-License-Identifier: GPL-2.0-only
"""What is left of a command when whoever started it is gone: nothing."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from gone import is_gone

from nuksmlab import guard, wait

# Starts a command under guard, and says when it runs; the command has a child in
# another session, and a temporary file, and tidies up when it is told to end.
STARTER = """
import subprocess, sys, time
from nuksmlab import guard
guard.unwind_when_terminated()
process = guard.start(["sh", "-c", sys.argv[2]], grace=float(sys.argv[1]))
time.sleep(1000)
"""
COMMAND = """
trap 'sleep 0.3; echo >"{place}/tidied"; exit' TERM
mktemp >"{place}/file"
setsid sleep 1000 & echo $! $$ >"{place}/new"; mv "{place}/new" "{place}/pids"
wait
"""


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
    file = Path((tmp_path / "file").read_text().strip())
    wait.until(lambda: not file.parent.exists(), lambda: f"the end of {file}")


def test_what_a_command_leaves_behind_is_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    process = guard.start(["sh", "-c", f"sleep 1000 & echo $! >{pid}"], grace=0)
    assert process.wait() == 0
    assert is_gone(int(pid.read_text()))


def test_what_a_guard_that_was_killed_leaves_behind_is_ended(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = f"sleep 1000 & echo $! $$ >{pids}.new; mv {pids}.new {pids}; wait"
    known = {**os.environ, "TMPDIR": str(tmp_path)}  # where its directory stays
    process = guard.start(["sh", "-c", command], grace=0, environment=known)
    wait.until(pids.exists, lambda: "the command")
    process.kill()
    guard.end(process)
    for pid in map(int, pids.read_text().split()):
        wait.until(lambda pid=pid: is_gone(pid), lambda: "the end")  # type: ignore[misc]


PUTS_BACK = """
import os, subprocess, sys
if len(sys.argv) == 2:
    subprocess.Popen([sys.executable, *sys.argv, "."]).wait()
from nuksmlab import guard
guard.unwind_when_terminated()
try:
    os.kill(os.getppid(), 9)
    while True:
        guard.time.sleep(1)
finally:
    open(sys.argv[1], "w").close()
"""


def test_what_was_started_by_who_was_killed_puts_back_what_it_changed(
    tmp_path: Path,
) -> None:
    code, back = tmp_path / "code.py", tmp_path / "back"
    code.write_text(PUTS_BACK)
    process = guard.start([sys.executable, str(code), str(back)], grace=900)
    assert process.wait() == 128 + signal.SIGKILL
    assert back.exists()


def test_who_is_undisturbed_hears_of_it_afterwards(tmp_path: Path) -> None:
    said = tmp_path / "said"
    code = (
        "import os, signal; from nuksmlab import guard; guard.unwind_when_terminated()"
    )
    code += "\nwith guard.undisturbed():\n os.kill(os.getpid(), signal.SIGTERM)"
    code += f"\n open({str(said)!r}, 'w').close()\nos.unlink({str(said)!r})"
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == 128 + signal.SIGTERM
    assert said.exists()


@pytest.mark.parametrize("when", ["before", "within"])
def test_who_is_undisturbed_may_be_disturbed_for_a_while(
    tmp_path: Path, when: str
) -> None:
    said = tmp_path / "said"
    before, within = "pass", "os.kill(os.getpid(), signal.SIGTERM)"
    if when == "before":
        before, within = within, before
    code = f"""
import os, signal
from nuksmlab import guard
guard.unwind_when_terminated()
with guard.undisturbed() as disturbed:
    try:
        {before}
        with disturbed():
            {within}
            open({str(said)!r}, "w").close()
    finally:
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {{*guard.ENDS}}
"""
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == 128 + signal.SIGTERM
    assert not said.exists()


def test_the_status_is_the_commands() -> None:
    assert guard.start(["sh", "-c", "exit 7"], grace=0).wait() == 7
    assert guard.start(["sh", "-c", "kill -9 $$"], grace=0).wait() == 137


HAS_A_SESSION = """
import os, sys
os.setsid()
os.execvp("sh", ["sh", "-c", sys.argv[1]])
"""


def test_a_session_of_its_own_ends_with_a_guard_that_is_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    notes = f"echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 1000"
    known = {**os.environ, "TMPDIR": str(tmp_path)}  # where its directory stays
    command = [sys.executable, "-c", HAS_A_SESSION, notes]
    process = guard.start(command, grace=0, environment=known)
    wait.until(pid.exists, lambda: "the command")
    process.kill()
    guard.end(process)
    one = int(pid.read_text())
    wait.until(lambda: is_gone(one), lambda: "the end")


def test_nohup_is_respected() -> None:
    code = "import signal; from nuksmlab import guard; guard.unwind_when_terminated();"
    code += "print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
    asked = ["nohup", sys.executable, "-c", code]
    said = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert said.stdout == "True\n"


FORKER = """
import os, sys, time
while True:
    if not os.fork():
        open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
        time.sleep(1000)
    time.sleep(0.003)
"""


def test_who_is_forked_while_all_are_ended_is_ended_too(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    for _ in range(5):
        process = guard.start([sys.executable, "-c", FORKER, str(pids)], grace=0)
        wait.until(pids.exists, lambda: "a child")
        guard.end(process)
        assert all(is_gone(int(pid)) for pid in pids.read_text().split())
        pids.unlink()


def test_what_is_adopted_and_ends_does_not_stay_as_a_zombie(tmp_path: Path) -> None:
    said = tmp_path / "said"
    orphan = f"(sh -c 'echo $$' >{said}) & sleep 1000"
    process = guard.start(["sh", "-c", orphan], grace=0)
    try:
        wait.until(lambda: said.exists() and said.read_text() != "", lambda: "it")
        pid = int(said.read_text())
        wait.until(lambda: not Path(f"/proc/{pid}").exists(), lambda: "its end")
    finally:
        guard.end(process)


HEADLESS = """
import threading, time, ctypes, sys, os
threading.Thread(target=time.sleep, args=(1000,)).start()
open(sys.argv[1], "w").write(str(os.getpid()))
ctypes.CDLL(None).syscall(60, 0)  # exit, of this thread alone
"""


def test_a_process_whose_first_thread_has_ended_is_ended_too(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    process = guard.start([sys.executable, "-c", HEADLESS, str(pid)], grace=0)
    wait.until(lambda: pid.exists() and pid.read_text() != "", lambda: "it")
    stat = Path(f"/proc/{pid.read_text()}/stat")
    wait.until(lambda: ") Z " in stat.read_text(), lambda: "the end of its thread")
    guard.end(process)
    assert not stat.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_ends_already_is_not_disturbed(number: signal.Signals) -> None:
    code = f"""
import os, signal
from nuksmlab import guard
guard.unwind_when_terminated()
try:
    os.kill(os.getpid(), {number})
finally:
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    print("put back")
"""
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (said.stdout, said.stderr) == ("put back\n", "")
    assert said.returncode == 128 + number


def test_two_signals_at_once_are_as_one() -> None:
    code = """
import os, signal
from nuksmlab import guard
guard.unwind_when_terminated()
both = {signal.SIGINT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, both)
for one in both:
    os.kill(os.getpid(), one)
signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
"""
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (said.stdout, said.stderr) == ("", "")
    assert said.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_while_an_object_is_freed_is_not_lost(
    number: signal.Signals,
) -> None:
    code = f"""
import os, signal, threading
from nuksmlab import guard
class Freed:
    def __del__(self):
        os.kill(os.getpid(), {number})
guard.unwind_when_terminated()
Freed()
try:
    threading.Event().wait({wait.HANG_SECONDS})
finally:
    print("put back")
"""
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (said.stdout, said.stderr) == ("put back\n", "")
    assert said.returncode == 128 + number


def test_locks_last_as_long_as_what_holds_them(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = guard.start(["sleep", "1000"], grace=0, held=[lock.fileno()])
    with (tmp_path / "lock").open("w") as another:
        with pytest.raises(BlockingIOError):
            fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
        guard.end(process)
        fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
