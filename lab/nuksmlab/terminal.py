# SPDX-License-Identifier: GPL-2.0-only
"""A terminal without a window: keys go in, the screen can be read."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from types import TracebackType

import pyte

from nuksmlab import wait
from nuksmlab.wait import DeadlineError

SECONDS = wait.HANG_SECONDS
LEAVE_ALTERNATE_SCREEN = b"\x1b[?1049l"
SHOW_CURSOR = b"\x1b[?25h"


class Terminal:
    """Runs a program on a screen of some size; kills it at the block's end."""

    def __init__(
        self,
        command: Sequence[str],
        columns: int,
        rows: int,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self.said = b""
        self._stream = pyte.ByteStream(self.screen)
        self._master, self._slave = pty.openpty()
        self._set_size(columns, rows)
        self._modes = termios.tcgetattr(self._slave)
        self.process = subprocess.Popen(
            command,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={**os.environ, "TERM": "xterm-256color", **(environment or {})},
            start_new_session=True,
            # Its own terminal, so that a new size is told by a signal.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )

    def _set_size(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self._set_size(columns, rows)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def text(self) -> str:
        """The screen, without the blanks at the ends of lines."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def _take(self, seconds: float) -> bool:
        """Draws what the program has said meanwhile; false when it said nothing."""
        readable, _, _ = select.select([self._master], [], [], seconds)
        if not readable:
            return False
        data = os.read(self._master, 1 << 16)
        self.said += data
        self._stream.feed(data)
        return True

    def wait(self, done: Callable[[str], bool]) -> str:
        """The screen as soon as `done` says that it is the one waited for."""
        end = time.monotonic() + SECONDS
        while not done(self.text()):
            left = end - time.monotonic()
            if left < 0 or not self._take(left):
                raise DeadlineError(f"the screen stays:\n{self.text()}")
        return self.text()

    def wait_for(self, *words: str) -> str:
        return self.wait(lambda text: all(word in text for word in words))

    def wait_end(self) -> int:
        """The program's exit status, once it has said all."""
        status = self.process.wait(SECONDS)
        while self._take(0):
            pass
        return status

    def is_restored(self) -> bool:
        """Is the terminal as the program found it?"""
        return (
            termios.tcgetattr(self._slave) == self._modes
            and LEAVE_ALTERNATE_SCREEN in self.said
            and SHOW_CURSOR in self.said
        )

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)
