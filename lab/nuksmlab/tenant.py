# SPDX-License-Identifier: GPL-2.0-only
"""A process with known pages on one node, and the channel that controls it."""

import fcntl
import os
import select
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from nuksmlab import numa, paths, wait


class TenantError(Exception):
    """A tenant refused, or is gone."""


# Instead of a node: the kernel may run the tenant where it likes.
ANYWHERE = -1


@dataclass(frozen=True)
class Spec:
    """What a tenant is to be; the shares are percent of its pages."""

    name: str
    node: int  # or ANYWHERE
    mib: int
    equal: int = 100
    private: int = 0
    zero: int = 0
    changing: int = 0
    alike: int = 0
    same: int = 0
    seed: int = 1
    distinct: int = 0  # of the equal pages; 0: all
    madvised: bool = True

    def arguments(self) -> list[str]:
        result = ["--name", self.name]
        if self.node != ANYWHERE:
            result += ["--node", str(self.node)]
        result += ["--mib", str(self.mib), "--seed", str(self.seed)]
        result += ["--distinct", str(self.distinct)]
        for share in ("equal", "private", "zero", "changing", "alike", "same"):
            result += [f"--{share}", str(getattr(self, share))]
        return result if self.madvised else [*result, "--not-madvised"]


def parse_fields(text: str) -> dict[str, str]:
    return dict(field.split("=", 1) for field in text.split())


def where(pid: int) -> str:
    """Where in the kernel a process is; only root is told, and not by all kernels."""
    try:
        return Path(f"/proc/{pid}/stack").read_text()
    except OSError as error:
        return str(error)


class Controlled:
    """A process that answers each line it is told by one line; see tenant.c."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.facts = self._read("ready")
        self.pid = int(self.facts["pid"])

    def _read(self, expected: str) -> dict[str, str]:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], wait.HANG_SECONDS)[0]:
            raise TenantError(f"{self.name} hangs: {where(self.process.pid)}")
        line = self.process.stdout.readline().strip()
        verdict, _, rest = line.partition(" ")
        if verdict != expected:
            said = line or f"gone ({self.process.poll()})"
            raise TenantError(f"{self.name}: {said}")
        return parse_fields(rest)

    def send(self, command: str) -> None:
        """Gives a command whose answer `receive` takes later."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, int]:
        return {key: int(value) for key, value in self._read("ok").items()}

    def has_answered(self) -> bool:
        """Is there something for `receive` to take?"""
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def command(self, command: str) -> dict[str, int]:
        self.send(command)
        return self.receive()

    def renice(self, nice: int) -> None:
        os.setpriority(os.PRIO_PROCESS, self.pid, nice)

    def quit(self) -> None:
        if self.process.poll() is None:
            self.command("quit")
            self.process.communicate()
        if self.process.returncode != 0:
            raise TenantError(f"{self.name} ended with {self.process.returncode}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.quit()
        else:
            self.process.kill()
            self.process.communicate()


class Tenant(Controlled):
    """Started with its pages written; ends with the `with` block."""

    def __init__(
        self, spec: Spec, prefix: Sequence[str] = (), binary: Path = paths.TENANT
    ) -> None:
        super().__init__(spec.name, [*prefix, str(binary), *spec.arguments()])
        self.spec = spec
        self.equal_pages = int(self.facts["equal"])

    def bad_pages(self) -> int:
        """Compares every byte of every page with what it has to be."""
        return self.command("verify")["bad"]

    def again(self, pages: Iterable[int]) -> None:
        """Writes to these equal pages what is in them."""
        self.command("again " + ",".join(map(str, pages)))

    def equal_pages_nodes(self) -> list[int]:
        """The node of each of its equal pages."""
        address = int(self.facts["equal_at"], 16)
        return numa.nodes_of(self.pid, address, self.equal_pages)

    def equal_pages_by_node(self) -> dict[int, int]:
        """Where the kernel says this tenant's equal pages are."""
        return numa.pages_by_node(self.pid, int(self.facts["equal_at"], 16))

    def share_on(self, node: int) -> float:
        """Of its equal pages, the part that is there."""
        return self.equal_pages_by_node().get(node, 0) / self.equal_pages


# Called with a name, a node, and what else a Spec takes by name.
StartTenant = Callable[..., Tenant]


def taken(told: Path) -> int:
    """How many pages a tenant got that was told to `take` them."""
    return int.from_bytes(told.read_bytes(), "little")


def lend(tenant: Tenant, fifo: Path) -> int:
    """Puts its equal pages, 1 MiB at most, into a pipe; held until that is closed."""
    os.mkfifo(fifo)
    pipe = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)
    assert tenant.command(f"lend {fifo}")["pages"] == tenant.equal_pages
    return pipe


def fill_node(start: StartTenant, node: int, left_mib: int) -> list[Tenant]:
    """Leaves so much before the kernel reclaims: nothing is reclaimed or killed.

    Pages that wait on CPUs' lists are used, too, but do not count as free
    before, so that it can take more than one tenant.
    """
    fillers: list[Tenant] = []
    while (room := numa.room_mib(node) - left_mib) > 0:
        name = f"filler-{len(fillers)}"
        fillers.append(start(name, node, mib=room, equal=0, private=100))
    return fillers
