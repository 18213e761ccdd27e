# SPDX-License-Identifier: GPL-2.0-only
"""Breaks the engine, and the program's planner, on purpose, in each way of
mutants.toml, and says who notices.

Each mutant is built, and judged by the test that is meant for it (`by`): minutes.
With --all the tests in the kernel, the engine's tests on two nodes and on four, and the
goals of the paper in small judge engines, too: a quarter of an hour and more for each.
The same is asked of the engine as it is, first: what fails there, too, has noticed
nothing. What was judged before is kept, as long as neither the kernel nor the tests
change, but for what nobody noticed: there what tests have in common may have changed.
build/mutants/table.md is made of all that is there.
"""

import argparse
import functools
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
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
NO_END = "the machine did not come to the end"
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
    def where(self) -> "Where":
        """What is meant for it is run in."""
        return Where(self.nodes, self.slow_tier)

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
    which: Sequence[str] = (ENGINE_TESTS,),
    marked: str = TESTED_ALWAYS,
) -> list[str]:
    """Those that failed; one for all if there is no verdict. Skipped is none."""
    python = sys.executable
    pytest = [python, "-m", "pytest", "-rfE", "--tb=no", "-p", "no:cacheprovider"]
    selection = ["-c", "lab/pyproject.toml", *which, "-m", marked]
    if len(which) == 1 and ENGINE_TESTS not in which:
        selection.append("--exitfirst")  # the next one may wait as long in vain
    skipped = ["--ignore", f"{ENGINE_TESTS}/test_selftests.py"]
    where = ["--output", str(output), "--"]
    text = run(
        [python, "-m", "nuksmlab", *command, *where, *pytest, *selection, *skipped],
        output.with_suffix(".log"),
    )
    failed = re.findall(r"^(?:FAILED|ERROR) \S*?([\w-]+\.py::\S+)", text, re.MULTILINE)
    if re.search(r"^=+ \d+ skipped in", text, re.MULTILINE):
        raise MutantError(f"{which[0]}: all of it was skipped, see {output}.log")
    ended = re.search(r"^=+ .*\b(passed|failed|error)", text, re.MULTILINE)
    return failed if ended else [*failed, NO_END]


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
        missed = re.findall(r"^paper: (.*): [^:\n]*, wanted ", text, re.MULTILINE)
        ended = "goals hold" in text
        failed += missed if ended else [*missed, f"{experiment} did not end"]
    return failed


@dataclass(frozen=True)
class Where:
    """What tests are run in."""

    nodes: int  # 0: User-Mode Linux
    slow_tier: bool = False

    @property
    def config(self) -> str:
        return "lab" if self.nodes else "um"

    def tests(
        self, kernel: Path, output: Path, which: Sequence[str] = (ENGINE_TESTS,)
    ) -> list[str]:
        to_boot = ["--kernel", str(kernel), "--memory-mib"]
        if not self.nodes:
            return tests(["uml", *to_boot, "512"], output, which)
        machine = ["run", *to_boot, "768", "--nodes", str(self.nodes)]
        if ENGINE_TESTS not in which:
            machine += ["--deadline", str(HANGS_SECONDS)]
        if self.slow_tier:
            machine.append("--slow-tier")
        return tests(
            machine, output, which, "tiers" if self.slow_tier else TESTED_ALWAYS
        )


def judge_engine(
    tree: Path | None,
    meant: Mapping[Where, Sequence[str]],
    folder: Path,
    by_all: bool,
) -> dict[str, list[str]]:
    """In the order of what it takes; of the engine as it is, without a `tree`."""
    with ExitStack() as stack:

        @functools.cache
        def built(config: str) -> Path:
            kernel = kernels.build(config, tree=tree)
            if tree:
                stack.callback(kernel.unlink, missing_ok=True)
            return kernel

        def ask(where: Where, name: str, *which: Sequence[str]) -> list[str]:
            return where.tests(built(where.config), folder / name, *which)

        own = [
            failed
            for number, (where, which) in enumerate(meant.items())
            for failed in ask(where, f"meant-{number}", which)
        ]
        if not by_all:
            return {MEANT: own}
        by = (
            *(own, ask(Where(0), "um"), ask(Where(2), "two"), ask(Where(4), "four")),
            goals(built("lab"), folder),
        )
        return dict(zip(ALL, by, strict=True))


def show(by: Mapping[str, Sequence[str]]) -> None:
    for who, names in by.items():
        print(f"  {who}: {', '.join(names) or 'nothing noticed'}", flush=True)


def judge_as_it_is(mutants: Sequence[Mutant], by_all: bool) -> dict[str, list[str]]:
    """By all that is meant for any of them."""
    meant: dict[Where, list[str]] = {}
    for mutant in mutants:
        meant.setdefault(mutant.where, []).append(f"{ENGINE_TESTS}/{mutant.by}")
    print("the engine as it is", flush=True)
    folder = OUTPUT / "as-it-is"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    unique = {where: sorted(set(which)) for where, which in meant.items()}
    found = judge_engine(None, unique, folder, by_all)
    if any(NO_END in names for names in found.values()):
        raise MutantError(f"the engine as it is: {NO_END}, see {folder}")
    show(found)
    return found


def judge(
    mutant: Mutant, as_it_is: Mapping[str, Sequence[str]], by_all: bool
) -> dict[str, list[str]]:
    """What fails without it, too, has not noticed it."""
    print(f"{mutant.name}: {mutant.what}", flush=True)
    folder = OUTPUT / mutant.name
    shutil.rmtree(folder, ignore_errors=True)
    make(mutant, folder)
    if mutant.package:
        return {MEANT: crates_tests(mutant, folder)}
    meant = {mutant.where: [f"{ENGINE_TESTS}/{mutant.by}"]}
    found = judge_engine(folder, meant, folder, by_all)
    return {
        who: [name for name in names if name not in as_it_is[who]]
        for who, names in found.items()
    }


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
        found = kept(mutant) or Found(inputs="", by={})
        cells = [
            (f"{len(names)}: {names[0]}" if names else "none")
            if (names := found["by"].get(judge)) is not None
            else ""
            for judge in ALL
        ]
        rows.append(f"| {mutant.name} | {mutant.what} | {' | '.join(cells)} |")
    head = f"| mutant | what is broken | {' | '.join(ALL)} |"
    return "\n".join([head, "|---" * (2 + len(ALL)) + "|", *rows]) + "\n"


def kept(mutant: Mutant) -> Found | None:
    path = OUTPUT / f"{mutant.name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def keep(mutant: Mutant, found: Found) -> None:
    new = OUTPUT / f"{mutant.name}.new"
    new.write_text(json.dumps(found, indent=1) + "\n")
    new.replace(OUTPUT / f"{mutant.name}.json")


def is_judged(mutant: Mutant, by_all: bool) -> bool:
    if not (found := kept(mutant)):
        return False
    judges = len(ALL) if by_all and not mutant.package else 1
    asked, noticed = len(found["by"]), any(found["by"].values())
    return found["inputs"] == inputs(mutant, by_all) and noticed and asked >= judges


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
    several = [mutants[name] for name in chosen]
    pending = [one for one in several if not is_judged(one, arguments.all)]
    engines = [one for one in pending if not one.package]
    as_it_is = judge_as_it_is(engines, arguments.all) if engines else {}
    for mutant in pending:
        made_from = inputs(mutant, arguments.all)
        by = judge(mutant, as_it_is, arguments.all)
        show(by)
        keep(mutant, Found(inputs=made_from, by=by))
        (OUTPUT / "table.md").write_text(table(mutants))
    uncaught = []
    for mutant in several:
        found = kept(mutant)
        assert found
        if not any(found["by"].values()):
            uncaught.append(mutant.name)
    (OUTPUT / "table.md").write_text(table(mutants))
    print(OUTPUT / "table.md")
    if uncaught:
        print(f"mutants: nobody noticed {', '.join(uncaught)}", file=sys.stderr)
    return 1 if uncaught else 0


if __name__ == "__main__":
    sys.exit(main())
