# SPDX-License-Identifier: GPL-2.0-only
"""Starts a command that does not outlive whoever started it, however that ends.

The command gets a session of its own, with `python -m nuksmlab.guard` as its first
process, which has a pipe from the starter as standard input. At the pipe's end, also
when the starter was killed, everything that descends from the guard gets SIGTERM, and
what is still there after the time it was granted SIGKILL; so it does when the command
was killed. What the command leaves behind when it ends by itself gets SIGKILL. Another
session is no way out, and User-Mode Linux takes one. Its temporary files are in a
directory of their own, which goes then, too.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import IO

from nuksmlab import paths

POLL_SECONDS = 0.05
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36  # Linux 3.4
ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
THREADS = 17  # among what /proc/PID/stat has after the name


@contextlib.contextmanager
def masked(how: int, signals: Iterable[int]) -> Iterator[set[int]]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:  # what came before the change is heard in it
        signal.pthread_sigmask(how, signals)
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def undisturbed() -> Iterator[Callable[[], AbstractContextManager[object]]]:
    """What would end this process is heard afterwards. For its main thread.

    Gives what lets it be heard for a while, by an exception within.
    """
    with masked(signal.SIG_BLOCK, ENDS) as before:
        yield partial(masked, signal.SIG_SETMASK, before)


def end_with(parent: int, number: int) -> None:
    """The signal comes when the parent has ended, or at once if it has."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def unwind_when_terminated() -> None:
    """SIGTERM, SIGINT, or a terminal that is closed, ends this process by an exception.

    So `finally` puts back what this process has changed. Once is enough: what ends
    already is not disturbed. Under nohup a terminal may go.
    """
    numbers = [each for each in ENDS if signal.getsignal(each) != signal.SIG_IGN]

    def unwind(number: int, _frame: object) -> None:
        for one in numbers:
            signal.signal(one, lambda *_: None)
        sys.exit(128 + number)

    def again(lost: "sys.UnraisableHookArgs") -> None:
        """From a __del__ no exception gets out: the signal comes again, later."""
        if isinstance(lost.exc_value, SystemExit):
            handle()
            assert isinstance(lost.exc_value.code, int)
            number = lost.exc_value.code - 128
            threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
        else:
            sys.__unraisablehook__(lost)

    def handle() -> None:
        for number in numbers:
            signal.signal(number, unwind)

    handle()
    sys.unraisablehook = again


def start(  # noqa: PLR0913 (each says another thing about the command)
    command: Sequence[str],
    *,
    grace: float,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
    held: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Closing its standard input ends the command, which then has `grace` seconds.

    `held` are descriptors, of locks, that stay open until all of the command is gone.
    """
    known = dict(os.environ if environment is None else environment)
    known["PYTHONPATH"] = str(paths.REPOSITORY / "lab")
    return subprocess.Popen(
        [sys.executable, "-m", "nuksmlab.guard", str(grace), *command],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        env=known,
        cwd=paths.REPOSITORY,
        start_new_session=True,
        pass_fds=held,
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends what `start` has started, and waits until it has ended."""
    assert process.stdin
    process.stdin.close()
    if process.wait() < 0:  # it was killed itself: what it has started is in its group
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def descendants(ancestor: int) -> list[int]:
    """The living processes below one, its children first."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        # Of a process whose first thread has ended others may go on.
        if fields[0] not in "ZX" or int(fields[THREADS]) > 1:
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [ancestor]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def adopt() -> None:
    """What its descendants leave behind when they end becomes this process's child."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(command: int) -> None:
    """Those who have ended of what was adopted; the command's status is its own."""
    ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
    with contextlib.suppress(ChildProcessError):
        while (one := os.waitid(os.P_ALL, 0, ended)) and one.si_pid != command:
            os.waitpid(one.si_pid, 0)


def signal_all(number: int) -> list[int]:
    """Sends it to all that may be sent one, and returns these."""
    told = []
    for pid in descendants(os.getpid()):
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue
        told.append(pid)
    return told


def end_all(grace: float) -> None:
    end_at = time.monotonic() + grace
    if grace:
        signal_all(signal.SIGTERM)
    while descendants(os.getpid()) and time.monotonic() < end_at:
        time.sleep(POLL_SECONDS)
    # Also who was forked meanwhile. Who is root's, started by sudo, cannot be told, and
    # ends by itself or not at all.
    while signal_all(signal.SIGKILL):
        time.sleep(POLL_SECONDS)


def main() -> int:
    grace, command = float(sys.argv[1]), sys.argv[2:]
    for number in ENDS:
        signal.signal(number, lambda *_: None)  # handled, so that the command has none
    adopt()
    # What root of a user namespace has made there may stay
    with tempfile.TemporaryDirectory(
        prefix="nuksm-", ignore_cleanup_errors=True
    ) as files:
        Path(files).chmod(0o1777)  # for all users, as /tmp is
        known = {**os.environ, "TMPDIR": files}
        # Without its guard the command ends, at least: what has a session of its own is
        # not ended with the others.
        number = signal.SIGTERM if grace else signal.SIGKILL
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env=known,
            preexec_fn=partial(end_with, os.getpid(), number),  # noqa: PLW1509 (no threads)
        )
        signal.signal(signal.SIGCHLD, lambda *_: reap(child.pid))
        handle = os.pidfd_open(child.pid)
        ended, _, _ = select.select([handle, sys.stdin], [], [])
        # Who was killed has put nothing back: what it has started still may.
        by_itself = handle in ended and child.wait() >= 0
        end_all(0.0 if by_itself else grace)
        status = child.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
