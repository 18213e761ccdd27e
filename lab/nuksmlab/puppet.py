# SPDX-License-Identifier: GPL-2.0-only
"""A child of this process that does what it is told, step by step."""

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Puppet:
    """A child of this process that does one thing after the other, as it is told."""

    def __init__(self, *things: Callable[[], object]) -> None:
        orders, self.tell = os.pipe()
        self.done, does = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.tell)
            os.close(self.done)
            try:
                for do in things:
                    os.read(orders, 1)
                    answer = do()
                    os.write(does, f"{answer}\n".encode())
                os.read(orders, 1)
            except BaseException:  # it must not go on as this process
                traceback.print_exc()
            os._exit(0)
        os.close(orders)
        os.close(does)

    def begin(self) -> None:
        """Its next step, while others do something."""
        os.write(self.tell, b".")

    def answer(self) -> str:
        """To the step that it has begun; raises where that fails."""
        answer = os.read(self.done, 64)
        assert answer, "the child has failed, as it told"
        return answer.decode().strip()

    def next(self) -> str:
        """The answer to its next step."""
        self.begin()
        return self.answer()

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.tell)
        os.close(self.done)


@contextmanager
def puppet(*things: Callable[[], object]) -> Iterator[Puppet]:
    made = Puppet(*things)
    try:
        yield made
    finally:
        made.end()


def fork_and_wait() -> int:
    """The child of whoever calls this does nothing until it is killed."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return pid
