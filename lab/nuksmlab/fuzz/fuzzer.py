# SPDX-License-Identifier: GPL-2.0-only
"""A process that does at random what the kernel lets it do to its memory."""

from collections.abc import Sequence
from dataclasses import dataclass

from nuksmlab import paths
from nuksmlab.tenant import Controlled, TenantError

PROFILES = ("mixed", "calm", "wild", "pairs")


@dataclass(frozen=True)
class Spec:
    """What a fuzzer is to be; without NUMA there are no nodes."""

    name: str
    profile: str
    pages: int
    node: int | None = None
    nodes: Sequence[int] = ()

    def arguments(self) -> list[str]:
        node = "-" if self.node is None else str(self.node)
        nodes = ",".join(map(str, self.nodes)) or "-"
        return [self.name, self.profile, str(self.pages), node, nodes]


class Fuzzer(Controlled):
    def __init__(self, spec: Spec, prefix: Sequence[str] = ()) -> None:
        super().__init__(spec.name, [*prefix, str(paths.FUZZER), *spec.arguments()])
        self.spec = spec
        self.base = int(self.facts["at"], 16)

    def go(self, seed: int) -> None:
        """Begins to act; the same seed gives the same actions."""
        self.command(f"go {seed}")

    def judge(self, answer: dict[str, int]) -> None:
        """Raises what is wrong with the answer to `pause` or `verify`."""
        wrong = {key: answer[key] for key in ("bad", "errors") if answer.get(key)}
        if wrong:
            raise TenantError(f"{self.spec}: {wrong}; see what it said above")
