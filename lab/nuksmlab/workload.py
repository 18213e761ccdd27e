# SPDX-License-Identifier: GPL-2.0-only
"""One instance of a workload on one node, and the channel that controls it."""

import json
import os
import subprocess
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypedDict, cast

from nuksmlab import numa, paths
from nuksmlab.tenant import ANYWHERE

LAST_LINES = 100  # a kernel's words when it dies


class WorkloadError(Exception):
    """A workload ended, or said what it must not."""


class EndedError(WorkloadError):
    """It ended with that status; what it, or its kernel, said last."""

    def __init__(self, name: str, status: int, said: str) -> None:
        super().__init__(f"{name} ended with {status}, and said last:\n{said}")
        self.status = status
        self.said = said


class Answer(TypedDict):
    """What a workload says of one measured phase."""

    operations: int
    operation: str
    checksum: str
    seconds: float


def read_answer(process: subprocess.Popen[str], name: str) -> dict[str, Any]:
    """The next line that is one: a guest's console also says what was typed, and of
    what its kernel died."""
    assert process.stdout is not None
    said = deque[str](maxlen=LAST_LINES)
    for line in process.stdout:
        # Who ends in the middle of a line has not answered.
        if line.startswith("{") and line.endswith("\n"):
            try:
                return cast(dict[str, Any], json.loads(line))
            except ValueError as error:
                raise WorkloadError(f"{name} answered {line!r}: {error}") from error
        said.append(line)
    raise EndedError(name, process.wait(), "".join(said))


class Instance:
    """Started with its data prepared; ends with the `with` block."""

    def __init__(
        self, name: str, number: int, node: int, kib: int, *, huge: bool = False
    ) -> None:
        self.name = f"{name} {number}"
        self.huge = huge
        self.node = node
        self.process = subprocess.Popen(
            self._command(name, number, kib),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        ready = self._read()
        self.pid = int(ready["pid"])
        self.pages = int(ready["pages"])
        self.at = int(ready["at"])

    def _command(self, name: str, number: int, kib: int) -> list[str]:
        node = "-" if self.node == ANYWHERE else str(self.node)
        huge = ("huge",) if self.huge else ()
        return [str(paths.WORKLOAD), name, str(number), node, str(kib), *huge]

    def _read(self) -> dict[str, Any]:
        return read_answer(self.process, self.name)

    @property
    def equal_pages(self) -> int:
        """That are the same in other instances: all."""
        return self.pages

    def send(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    def warm(self) -> None:
        """Reads all of its pages, so that reading them takes no faults later."""
        self.send("warm")
        self._read()

    def begin(self, operations: int) -> None:
        """Starts a measured phase, whose answer `end` waits for."""
        self.send(f"run {operations}")

    def end(self) -> Answer:
        return cast(Answer, self._read())

    def run(self, operations: int) -> Answer:
        self.begin(operations)
        return self.end()

    def sum(self) -> str:
        """Of a few words of each page."""
        self.send("sum")
        return cast(str, self._read()["sum"])

    def flip(self, every: int) -> None:
        """Writes to one of so many pages; twice, and they are as they were."""
        self.send(f"flip {every}")
        self._read()

    def move(self, node: int) -> None:
        """To another node's CPUs; new memory comes from there, too."""
        self.send(f"move {node}")
        self._read()
        self.node = node

    def prefer(self, first: int, count: int) -> None:
        """Which pages are hot, in its own order; none: by Zipf's law."""
        self.send(f"hot {first} {count}")

    @contextmanager
    def using(self, rate: int) -> Iterator[None]:
        """Meanwhile it does so many operations a second, which are not counted."""
        self.send(f"use {rate}")
        yield
        self.send("rest")
        self._read()

    def pages_by_node(self) -> dict[int, int]:
        """Where the kernel says this instance's shared data is."""
        return numa.pages_by_node(self.pid, self.at)

    def renice(self, nice: int) -> None:
        os.setpriority(os.PRIO_PROCESS, self.pid, nice)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.send("quit")
        else:
            self.process.kill()
        self.process.communicate()
