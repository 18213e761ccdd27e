# SPDX-License-Identifier: GPL-2.0-only
"""Breaks the engine, and the program's planner, on purpose, in each way of
mutants.toml, and says who notices.

Each mutant is built, and judged by the test that is meant for it (`by`): minutes.
With --all the tests in the kernel, the engine's tests on two nodes and on four, and the
goals of the paper in small judge engines, too: a quarter of an hour and more for each.
The same is asked of the engine as it is, first: what fails there, too, has noticed
nothing. What was judged before is kept, as long as neither the kernel nor the tests
change, but for what nobody noticed: there what tests have in common may have changed.
build/mutants/table.md is made of all that is there. `make mutants` runs this for each
mutant, several at a time (nuksmlab.suite).
"""

import argparse
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from nuksmlab import guard, kernels, paths, wait
from nuksmlab.alone import alone
from nuksmlab.mutants.mutant import AS_IT_IS, Mutant, MutantError, known, make

OUTPUT = paths.BUILD / "mutants"
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


class Found(TypedDict):
    """What each judge said: the names of tests that failed, or of goals."""

    inputs: str
    by: dict[str, list[str]]


class FoundAsItIs(Found):
    """And which tests were asked, as mutants name them."""

    asked: list[str]


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


def where(mutant: Mutant) -> Where:
    """What is meant for it is run in."""
    return Where(mutant.nodes, mutant.slow_tier)


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
        meant.setdefault(where(mutant), []).append(f"{ENGINE_TESTS}/{mutant.by}")
    print("the engine as it is", flush=True)
    folder = OUTPUT / AS_IT_IS
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    unique = {place: sorted(set(which)) for place, which in meant.items()}
    found = judge_engine(None, unique, folder, by_all)
    if any(NO_END in names for names in found.values()):
        raise MutantError(f"the engine as it is: {NO_END}, see {folder}")
    show(found)
    return found


def as_it_is(mutants: Sequence[Mutant], by_all: bool) -> dict[str, list[str]]:
    """What fails though nothing is broken, kept as long as nothing changes."""
    judges = (ENGINE_TESTS, *(["lab/nuksmlab/paper"] if by_all else []))
    made_from = hash_of(repr(by_all), ["kernel", *judges])
    asked = {mutant.by for mutant in mutants}
    with alone(OUTPUT / AS_IT_IS):
        path = kept_in(AS_IT_IS)
        if path.exists():
            last: FoundAsItIs = json.loads(path.read_text())
            if last["inputs"] == made_from and asked <= set(last["asked"]):
                return last["by"]
        by = judge_as_it_is(mutants, by_all)
        keep(AS_IT_IS, FoundAsItIs(inputs=made_from, by=by, asked=sorted(asked)))
    return by


def judge(
    mutant: Mutant, fails_always: Mapping[str, Sequence[str]], by_all: bool
) -> dict[str, list[str]]:
    """What fails without it, too, has not noticed it."""
    print(f"{mutant.name}: {mutant.what}", flush=True)
    folder = OUTPUT / mutant.name
    shutil.rmtree(folder, ignore_errors=True)
    make(mutant, folder)
    if mutant.package:
        return {MEANT: crates_tests(mutant, folder)}
    meant = {where(mutant): [f"{ENGINE_TESTS}/{mutant.by}"]}
    found = judge_engine(folder, meant, folder, by_all)
    return {
        who: [name for name in names if name not in fails_always[who]]
        for who, names in found.items()
    }


def hash_of(text: str, parts: Sequence[str]) -> str:
    """Of a text, and of files and folders of the repository."""
    seen = hashlib.sha256(text.encode())
    for part in parts:
        root = paths.REPOSITORY / part
        for path in [root] if root.is_file() else sorted(root.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                seen.update(path.read_bytes())
    return seen.hexdigest()[:16]


def inputs(mutant: Mutant, by_all: bool) -> str:
    """A hash of the mutant, of what it is made of, and of those who judge."""
    own = [f"{ENGINE_TESTS}/conftest.py", f"{ENGINE_TESTS}/{mutant.by.split('::')[0]}"]
    others = [ENGINE_TESTS, "lab/nuksmlab/paper"] if by_all else own
    judges = [] if mutant.package else others
    return hash_of(repr(mutant), [*mutant.parts, *judges])


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


def kept_in(name: str) -> Path:
    return OUTPUT / f"{name}.json"


def kept(mutant: Mutant) -> Found | None:
    path = kept_in(mutant.name)
    return json.loads(path.read_text()) if path.exists() else None


def keep(name: str, found: Found) -> None:
    put(kept_in(name), json.dumps(found, indent=1) + "\n")


def put(path: Path, text: str) -> None:
    """All of it at once: several mutants are judged at a time."""
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(text)
    new.replace(path)


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
    names = ", ".join([AS_IT_IS, *mutants])
    parser.add_argument("names", nargs="*", metavar="NAME", help=names)
    parser.add_argument("--all", action="store_true", help="ask all who could notice")
    arguments = parser.parse_args()
    chosen = arguments.names or list(mutants)
    if unknown := set(chosen) - {AS_IT_IS, *mutants}:
        parser.error(f"no such mutant: {', '.join(unknown)}")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    several = [mutants[name] for name in chosen if name != AS_IT_IS]
    pending = [one for one in several if not is_judged(one, arguments.all)]
    to_come = mutants.values() if AS_IT_IS in chosen else pending
    engines = [
        one for one in to_come if not one.package and not is_judged(one, arguments.all)
    ]
    fails_always = as_it_is(engines, arguments.all) if engines else {}
    for mutant in pending:
        made_from = inputs(mutant, arguments.all)
        by = judge(mutant, fails_always, arguments.all)
        show(by)
        keep(mutant.name, Found(inputs=made_from, by=by))
        put(OUTPUT / "table.md", table(mutants))
    put(OUTPUT / "table.md", table(mutants))
    print(OUTPUT / "table.md")
    uncaught = [
        one.name
        for one in several
        if (found := kept(one)) and not any(found["by"].values())
    ]
    if uncaught:
        print(f"mutants: nobody noticed {', '.join(uncaught)}", file=sys.stderr)
    return 1 if uncaught else 0


if __name__ == "__main__":
    sys.exit(main())
