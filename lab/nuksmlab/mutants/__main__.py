# SPDX-License-Identifier: GPL-2.0-only
"""Breaks the engine, and the program's planner, on purpose, in each way of
mutants.toml, and says who notices.

Each mutant is built, and judged by the test that is meant for it (`by`): minutes.
With --all the tests in the kernel, the engine's tests on two nodes and on four, and the
goals of the paper in small judge engines, too: a quarter of an hour and more for each.
What was judged before is kept, as long as neither the kernel nor the tests change, but
for what nobody noticed: there what tests have in common may have changed.
build/mutants/table.md is made of all that is there.
"""

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from nuksmlab import guard, kernels, paths, wait

OUTPUT = paths.BUILD / "mutants"
MUTANTS = Path(__file__).with_name("mutants.toml")
MEANT = "meant for it"
ALL = (MEANT, "one node, KUnit", "two nodes", "four nodes", "paper")
ENGINE_TESTS = "lab/engine_tests"
TESTED_ALWAYS = (
    "not stress and not cost and not exhaustive and not windows and not tiers"
)
# Without a word by a machine in which one test, or a file of them, is run: longer than
# a test waits in vain.
HANGS_SECONDS = round(wait.HANG_SECONDS) + 300
# For who is ended to end what it has started itself.
GRACE_SECONDS = 30.0
EXPERIMENTS = ("fairness", "priority", "nodes", "replicas")


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


class Found(TypedDict):
    """What each judge said: the names of tests that failed, or of goals."""

    inputs: str
    by: dict[str, list[str]]


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


def run(command: Sequence[str], log: Path) -> str:
    """All that it prints; that it fails is what is hoped for."""
    with log.open("wb") as file:
        running = guard.start(
            command, grace=GRACE_SECONDS, stdout=file, stderr=subprocess.STDOUT
        )
        try:
            running.wait()
        finally:
            guard.end(running)
    return log.read_text(errors="replace")


def tests(
    command: Sequence[str],
    output: Path,
    which: str = ENGINE_TESTS,
    marked: str = TESTED_ALWAYS,
) -> list[str]:
    """Those that failed; one for all if there is no verdict. Skipped is none."""
    python = sys.executable
    pytest = [python, "-m", "pytest", "-rfE", "--tb=no", "-p", "no:cacheprovider"]
    selection = ["-c", "lab/pyproject.toml", which, "-m", marked]
    if which != ENGINE_TESTS:
        selection.append("--exitfirst")  # the next one may wait as long in vain
    skipped = ["--ignore", f"{ENGINE_TESTS}/test_selftests.py"]
    where = ["--output", str(output), "--"]
    text = run(
        [python, "-m", "nuksmlab", *command, *where, *pytest, *selection, *skipped],
        output.with_suffix(".log"),
    )
    failed = re.findall(r"^(?:FAILED|ERROR) \S*?([\w-]+\.py::\S+)", text, re.MULTILINE)
    if re.search(r"^=+ \d+ skipped in", text, re.MULTILINE):
        raise MutantError(f"{which}: all of it was skipped, see {output}.log")
    ended = re.search(r"^=+ .*\b(passed|failed|error)", text, re.MULTILINE)
    return failed if ended else [*failed, "the machine did not come to the end"]


def crates_tests(mutant: Mutant, folder: Path) -> list[str]:
    """Of its crate, those that are meant for it, and failed."""
    cargo = ["cargo", "test", "--manifest-path", str(folder / "Cargo.toml")]
    text = run(
        [
            *(*cargo, "--target-dir", str(OUTPUT / "target")),
            *("--package", mutant.package, "--lib", "--", mutant.by),
        ],
        folder / "meant.log",
    )
    if not re.search(
        r"^test result: .* [1-9]\d* (?:passed|failed)", text, re.MULTILINE
    ):
        raise MutantError(f"{mutant.by}: was not run, see {folder}/meant.log")
    return re.findall(r"^test (\S+) .*\bFAILED$", text, re.MULTILINE)


def goals(kernel: Path, output: Path) -> list[str]:
    failed = []
    for experiment in EXPERIMENTS:
        command = ["-m", "nuksmlab.paper", "--quick", "--experiment", experiment]
        text = run(
            [
                *(sys.executable, *command, "--kernel", str(kernel)),
                *("--output", str(output / experiment)),
            ],
            output / f"{experiment}.log",
        )
        missed = re.findall(r"^paper: (.*), wanted ", text, re.MULTILINE)
        ended = "goals hold" in text
        failed += missed if ended else [*missed, f"{experiment} did not end"]
    return failed


def judge(mutant: Mutant, folder: Path, by_all: bool) -> dict[str, list[str]]:
    """In the order of what it takes."""
    if mutant.package:
        return {MEANT: crates_tests(mutant, folder)}
    with ExitStack() as stack:

        def built(config: str) -> Path:
            kernel = kernels.build(config, tree=folder)
            stack.callback(kernel.unlink, missing_ok=True)
            return kernel

        def on_one(output: str, which: str = ENGINE_TESTS) -> list[str]:
            uml = ["uml", "--kernel", str(built("um")), "--memory-mib", "512"]
            return tests(uml, folder / output, which)

        def on(nodes: int, output: str, which: str = ENGINE_TESTS) -> list[str]:
            machine = ["run", "--kernel", str(kernel), "--memory-mib", "768"]
            machine += ["--nodes", str(nodes)]
            marked = TESTED_ALWAYS
            if which != ENGINE_TESTS:
                machine += ["--deadline", str(HANGS_SECONDS)]
                if mutant.slow_tier:
                    machine.append("--slow-tier")
                    marked = "tiers"
            return tests(machine, folder / output, which, marked)

        meant = f"{ENGINE_TESTS}/{mutant.by}"
        if not mutant.nodes and not by_all:
            return {MEANT: on_one("meant", meant)}
        kernel = built("lab")
        own = (
            on(mutant.nodes, "meant", meant) if mutant.nodes else on_one("meant", meant)
        )
        if not by_all:
            return {MEANT: own}
        by = (own, on_one("um"), on(2, "two"), on(4, "four"), goals(kernel, folder))
        return dict(zip(ALL, by, strict=True))


def inputs(mutant: Mutant, by_all: bool) -> str:
    """A hash of the mutant, of what it is made of, and of those who judge."""
    seen = hashlib.sha256(repr(mutant).encode())
    own = [f"{ENGINE_TESTS}/conftest.py", f"{ENGINE_TESTS}/{mutant.by.split('::')[0]}"]
    others = [ENGINE_TESTS, "lab/nuksmlab/paper"] if by_all else own
    for part in (*mutant.parts, *([] if mutant.package else others)):
        root = paths.REPOSITORY / part
        for path in [root] if root.is_file() else sorted(root.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                seen.update(path.read_bytes())
    return seen.hexdigest()[:16]


def table(mutants: dict[str, Mutant]) -> str:
    """What nobody was asked for is left empty."""
    rows = []
    for mutant in mutants.values():
        path = OUTPUT / f"{mutant.name}.json"
        found: Found = {"inputs": "", "by": {}}
        if path.exists():
            found = json.loads(path.read_text())
        cells = [
            (f"{len(names)}: {names[0]}" if names else "none")
            if (names := found["by"].get(judge)) is not None
            else ""
            for judge in ALL
        ]
        rows.append(f"| {mutant.name} | {mutant.what} | {' | '.join(cells)} |")
    head = f"| mutant | what is broken | {' | '.join(ALL)} |"
    return "\n".join([head, "|---" * (2 + len(ALL)) + "|", *rows]) + "\n"


def is_judged(path: Path, wanted: str, judges: int) -> bool:
    if not path.exists():
        return False
    found: Found = json.loads(path.read_text())
    asked, noticed = len(found["by"]), any(found["by"].values())
    return found["inputs"] == wanted and noticed and asked >= judges


def main() -> int:
    guard.unwind_when_terminated()
    mutants = known()
    parser = argparse.ArgumentParser(prog="nuksmlab.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(mutants))
    parser.add_argument("--all", action="store_true", help="ask all who could notice")
    arguments = parser.parse_args()
    chosen = arguments.names or list(mutants)
    if unknown := set(chosen) - set(mutants):
        parser.error(f"no such mutant: {', '.join(unknown)}")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    uncaught = []
    for name in chosen:
        mutant, path = mutants[name], OUTPUT / f"{name}.json"
        wanted = inputs(mutant, arguments.all)
        judges = len(ALL) if arguments.all and not mutant.package else 1
        if not is_judged(path, wanted, judges):
            print(f"{name}: {mutant.what}", flush=True)
            folder = OUTPUT / name
            shutil.rmtree(folder, ignore_errors=True)
            make(mutant, folder)
            found = Found(inputs=wanted, by=judge(mutant, folder, arguments.all))
            new = path.with_suffix(".new")
            new.write_text(json.dumps(found, indent=1) + "\n")
            new.replace(path)
        found = json.loads(path.read_text())
        for by, names in found["by"].items():
            print(f"  {by}: {', '.join(names) or 'nothing noticed'}", flush=True)
        if not any(found["by"].values()):
            uncaught.append(name)
    (OUTPUT / "table.md").write_text(table(mutants))
    print(OUTPUT / "table.md")
    if uncaught:
        print(f"mutants: nobody noticed {', '.join(uncaught)}", file=sys.stderr)
    return 1 if uncaught else 0


if __name__ == "__main__":
    sys.exit(main())
