# SPDX-License-Identifier: GPL-2.0-only
"""The mutants of mutants.toml, and how one is made."""

import shutil
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nuksmlab import paths

MUTANTS = Path(__file__).with_name("mutants.toml")
# In a mutant's place: nothing is broken.
AS_IT_IS = "as-it-is"


class MutantError(Exception):
    """It cannot be made."""


@dataclass(frozen=True)
class Mutant:
    """Text of the kernel's part or of a crate, and what it is replaced by."""

    name: str
    what: str
    by: str
    file: str
    old: str
    new: str
    more: Sequence[tuple[str, str]] = field(default=())
    nodes: int = 2  # or 0: on User-Mode Linux, whose kernel has KUnit
    slow_tier: bool = False  # in a machine that has one, too
    package: str = ""  # the crate it is of, whose own tests judge it

    def replacements(self) -> list[tuple[str, str]]:
        return [(self.old, self.new), *self.more]

    @property
    def parts(self) -> Sequence[str]:
        """Of the repository: what it is made of. `file` is in the first of them."""
        return ("crates", "Cargo.toml", "Cargo.lock") if self.package else ("kernel",)


def known() -> dict[str, Mutant]:
    entries = tomllib.loads(MUTANTS.read_text())["mutant"]
    return {entry["name"]: Mutant(**entry) for entry in entries}


def make(mutant: Mutant, folder: Path) -> Path:
    """A copy of what it is made of with its text in the place of ours; which file."""
    folder.mkdir(parents=True)
    for part in mutant.parts:
        root = paths.REPOSITORY / part
        (shutil.copytree if root.is_dir() else shutil.copy2)(root, folder / part)
    path = folder / mutant.parts[0] / mutant.file
    text = path.read_text()
    for old, new in mutant.replacements():
        if text.count(old) != 1:
            raise MutantError(f"{mutant.name}: not once in {mutant.file}: {old!r}")
        text = text.replace(old, new)
    path.write_text(text)
    return path
