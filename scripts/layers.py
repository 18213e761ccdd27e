#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Check that no file of a crate imports one that imports it, tests included.

Prints each crate's circle, and what breaks the order of crates/nuksm/src: main,
cli, commands, shared, where no command knows of another. Why this is no tool from
elsewhere: docs/decisions/0010-who-imports-whom.md.
"""

import re
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

CRATES = Path(__file__).resolve().parent.parent / "crates"
COMMENT = re.compile(r"//[^\n]*")
INLINE_MODULE = re.compile(r"^(?:pub )?mod \w+ \{\n.*?^\}", re.MULTILINE | re.DOTALL)
CHILD = re.compile(r"^(?:pub(?:\([^)]*\))? )?mod (\w+);", re.MULTILINE)
PATH = re.compile(
    r"(?<![\w:$])(\w+(?:::\w+)*)::(?:(\w+|\*)|\{((?:[^{}]|\{[^{}]*\})*)\})"
)
REEXPORT = re.compile(r"^pub use ([^;]*);", re.MULTILINE)

Module = tuple[str, ...]  # () is the crate's root


def module_of(file: Path, source: Path) -> Module:
    parts = file.relative_to(source).with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts


def paths(text: str) -> Iterator[Module]:
    """All paths with `::`; `a::{b::c, d}` are a::b::c and a::d."""
    for start, end, several in PATH.findall(text):
        for path in [end] if end else re.split(r"[{},]", several):
            yield (
                *start.split("::"),
                *(word.strip() for word in path.split("::") if word.strip()),
            )


class Crate:
    """The files of a crate, and what each takes from which other."""

    def __init__(self, source: Path) -> None:
        files = source.rglob("*.rs")
        self.texts = {
            module_of(file, source): COMMENT.sub("", file.read_text()) for file in files
        }
        self.children = {
            module: set(CHILD.findall(text)) for module, text in self.texts.items()
        }
        self.given_on: dict[tuple[Module, str], Module] = {}
        for module, text in self.texts.items():
            for path in (
                path for use in REEXPORT.findall(text) for path in paths(use + ";")
            ):
                self.given_on[module, path[-1]] = self.resolve(path, module) or module
        self.imports = {
            module: set(self.imports_of(module)) - {module} for module in self.texts
        }

    def resolve(self, path: Module, module: Module) -> Module | None:
        """The file that a path named in `module` leads to; None for other crates'."""
        first, rest = path[0], path[1:]
        if first == "crate":
            at: Module = ()
        elif first == "super":
            at = module[:-1]
            while rest[:1] == ("super",):
                at, rest = at[:-1], rest[1:]
        elif first == "self":
            at = module
        elif first in self.children.get(module, ()):
            at, rest = module, path
        else:
            return None
        for word in rest:
            if (*at, word) in self.texts:
                at = (*at, word)
            else:
                return self.given_on.get((at, word), at)
        return at

    def imports_of(self, module: Module) -> Iterator[Module]:
        text = self.texts[module]
        # In a module within the file, the first `super` is the file.
        for inline in INLINE_MODULE.findall(text):
            for path in paths(inline):
                found = self.resolve(
                    path, (*module, "") if path[0] == "super" else module
                )
                yield module if found is None else found
        for path in paths(INLINE_MODULE.sub("", text)):
            found = self.resolve(path, module)
            yield module if found is None else found

    def circle(self) -> str | None:
        try:
            TopologicalSorter(self.imports).prepare()
        except CycleError as error:
            return " -> ".join(
                "::".join(module) or "the root" for module in reversed(error.args[1])
            )
        return None

    def out_of_order(self) -> Iterator[str]:
        """What breaks the order of the program's folders."""
        for module, imports in self.imports.items():
            for other in imports:
                upwards = module[:1] == ("shared",) and other[:1] != ("shared",)
                sideways = (
                    module[:1] == other[:1] == ("commands",)
                    and module[1:2] != other[1:2]
                )
                to_cli = other[:1] == ("cli",) and module[:1] not in ((), ("cli",))
                if upwards or sideways or to_cli:
                    names = ["::".join(name) or "the root" for name in (module, other)]
                    yield " imports ".join(names)


def complaints_of(crates: Path) -> list[str]:
    complaints = []
    for source in sorted(crates.glob("*/src")):
        crate, name = Crate(source), source.parent.name
        if circle := crate.circle():
            complaints.append(f"{name} has a circle: {circle}")
        if name == "nuksm":
            complaints += [f"{name}: {complaint}" for complaint in crate.out_of_order()]
    return complaints


if __name__ == "__main__":
    sys.exit("\n".join(complaints_of(CRATES)) or 0)
