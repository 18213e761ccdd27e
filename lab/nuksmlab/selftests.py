# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own tests of KSM, and the engine's in its tree.

`build` compiles them into build/selftests, from the source that the engine is
built from. lab/engine_tests/test_selftests.py runs them in a machine and writes
what they say to selftests.json in its output directory. `compare` tells whether
the engine's kernel says, in every setting, what a stock kernel says.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from nuksmlab import guard, kernels, paths

DIRECTORY = paths.BUILD / "selftests"
TREE = Path("tools/testing/selftests")
OURS = ("index_test", "placement_test")
# How merged pages, among others, are found to be moved; newer versions have it.
RMAP = "rmap"
RESULTS = "selftests.json"
KSFT_SKIP = 4

# What the tests need of libnuma, whose headers are in a package of its own. QEMU
# needs the library, so that is there. With WITHOUT_NUMA, ksm_tests leaves
# merge_across_nodes as it is; else it sets it to 1.
NUMA_H = """\
#include <stddef.h>
#ifdef WITHOUT_NUMA
#define numa_available() (-1)
#else
int numa_available(void);
#endif
int numa_max_node(void);
long numa_node_size(int node, long *free);
void *numa_alloc_onnode(size_t size, int node);
void numa_free(void *memory, size_t size);
struct bitmask;
extern struct bitmask *numa_all_nodes_ptr;
unsigned int numa_bitmask_weight(const struct bitmask *mask);
int numa_bitmask_isbitset(const struct bitmask *mask, unsigned int bit);
"""
NUMAIF_H = """\
#define MPOL_MF_MOVE_ALL 4
long move_pages(int pid, unsigned long count, void **pages, const int *nodes,
		int *status, int flags);
"""

# What is wrong with the kernel's tests themselves, in some versions at least, as
# what is there and what belongs there.
FIXES = {
    # A scan that is under way may have passed the pages already. The scans of a
    # few pages are short, yet on stock kernels, too, -U failed now and then.
    "ksm_tests": (
        "cur_scan < init_scan + scan_count",
        "cur_scan <= init_scan + scan_count",
    ),
    # A list without an end: execv() fails, the child goes on as its parent, and
    # the test passes with nothing tested.
    "ksm_functional_tests": (
        "FORK_EXEC_CHILD_PRG_NAME };",
        "FORK_EXEC_CHILD_PRG_NAME, NULL };",
    ),
}


def compile_test(
    source: Path, name: str, files: Sequence[Path], options: Sequence[str] = ()
) -> None:
    """As the kernel's Makefiles do; its own headers go before the system's."""
    command = ["gcc", "-Wall", "-O2", "-U_FORTIFY_SOURCE", "-D_GNU_SOURCE="]
    command += ["-I", str(source / TREE)]
    # gcc takes a variable for unset that is set by all of a switch's cases.
    command += ["-Wno-maybe-uninitialized"]
    command += ["-I", str(source), "-I", str(source / TREE / "mm")]
    command += ["-isystem", str(source / "tools/include/uapi")]
    command += ["-isystem", str(DIRECTORY / "include")]
    command += [*map(str, files), *options, "-o", str(DIRECTORY / name)]
    subprocess.run(command, check=True)


def fixed(source: Path, name: str) -> Path:
    """One of the kernel's own tests, or a copy without its mistake."""
    there, proper = FIXES[name]
    original = source / TREE / "mm" / f"{name}.c"
    text = original.read_text()
    if proper in text:
        return original
    if text.count(there) != 1:
        raise kernels.KernelError(f"{name}.c has changed: look at FIXES in {__file__}")
    copy = DIRECTORY / f"{name}.c"
    copy.write_text(text.replace(there, proper))
    return copy


def build(version: str) -> None:
    source = kernels.build("source", version)
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    (DIRECTORY / "include").mkdir(parents=True)
    (DIRECTORY / "include" / "numa.h").write_text(NUMA_H)
    (DIRECTORY / "include" / "numaif.h").write_text(NUMAIF_H)
    mm = source / TREE / "mm"
    common = [mm / "vm_util.c", *mm.glob("*_settings.c")]
    numa = "-l:libnuma.so.1"
    ksm_tests = [fixed(source, "ksm_tests"), *common]
    compile_test(source, "ksm_tests", ksm_tests, [numa])
    compile_test(source, "ksm_tests_as_set", ksm_tests, ["-DWITHOUT_NUMA", numa])
    functional = [fixed(source, "ksm_functional_tests"), *common]
    compile_test(source, "ksm_functional_tests", functional)
    if (mm / f"{RMAP}.c").exists():
        compile_test(source, RMAP, [mm / f"{RMAP}.c", *common], [numa])
    own = paths.REPOSITORY / "kernel" / "files" / TREE / "nuksm"
    for name in OURS:
        compile_test(source, name, [own / f"{name}.c", own / "nuksm_util.c"])


@dataclass(frozen=True)
class Outcome:
    """How a test program ended, and its verdicts in order: `ok 1 KSM merging`."""

    status: int
    verdicts: tuple[str, ...]

    def counts(self) -> dict[str, int]:
        skipped = sum("# SKIP" in verdict for verdict in self.verdicts)
        failed = sum(verdict.startswith("not ") for verdict in self.verdicts)
        return {
            "pass": len(self.verdicts) - failed - skipped,
            "fail": failed,
            "skip": skipped,
        }

    def passed(self) -> bool:
        return self.status == 0 and self.counts()["pass"] == len(self.verdicts) > 0


# By setting of KSM, then by test.
Outcomes = dict[str, dict[str, Outcome]]


def parse(status: int, tap: str) -> Outcome:
    """Reads a test's output, in the kernel's form of the Test Anything Protocol."""
    verdicts = re.findall(r"^(?:not )?ok [0-9]+.*?$", tap, re.MULTILINE)
    return Outcome(status, tuple(verdict.strip() for verdict in verdicts))


def setting_name(values: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def write(path: Path, outcomes: Outcomes) -> None:
    plain = {
        setting: {
            test: asdict(outcome) | outcome.counts() for test, outcome in tests.items()
        }
        for setting, tests in outcomes.items()
    }
    path.write_text(json.dumps(plain, indent=1) + "\n")


def read(path: Path) -> Outcomes:
    return {
        setting: {
            test: Outcome(outcome["status"], tuple(outcome["verdicts"]))
            for test, outcome in tests.items()
        }
        for setting, tests in json.loads(path.read_text()).items()
    }


def differences(stock: Outcomes, ours: Outcomes) -> list[str]:
    """Where settings of ours, which begin with one of stock's, say otherwise."""
    found = []
    for name, expected in stock.items():
        settings = [setting for setting in ours if f"{setting} ".startswith(f"{name} ")]
        if not settings:
            found.append(f"{name}: was not tried on ours")
        for setting in settings:
            said = ours[setting]
            found += [
                f"{setting}: {test}: stock {expected.get(test)}, ours {said.get(test)}"
                for test in sorted(expected.keys() | said.keys())
                if expected.get(test) != said.get(test)
            ]
    return found


def table(outcomes: Outcomes) -> list[str]:
    """One line per setting: how many verdicts of each kind."""
    lines = []
    for setting, tests in outcomes.items():
        total = {"pass": 0, "fail": 0, "skip": 0}
        for outcome in tests.values():
            for kind, count in outcome.counts().items():
                total[kind] += count
        counted = " ".join(f"{kind} {count:3}" for kind, count in total.items())
        lines.append(f"  {setting:110} {counted}")
    return lines


def compare(stock_output: Path, our_output: Path) -> int:
    stock, ours = read(stock_output / RESULTS), read(our_output / RESULTS)
    print("stock", *table(stock), "ours", *table(ours), sep="\n")
    found = differences(stock, ours)
    print(*found, f"{len(found)} differences", sep="\n")
    return 1 if found else 0


def main() -> int:
    guard.unwind_when_terminated()
    parser = argparse.ArgumentParser(
        prog="nuksmlab.selftests",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, dest="what")
    building = commands.add_parser("build", help="compile them into build/selftests")
    building.add_argument("version", help="of Linux, whose tests they are: 6.12")
    comparison = commands.add_parser("compare", help="two kernels' results")
    comparison.add_argument("stock", type=Path, help="stock kernel's output directory")
    comparison.add_argument("ours", type=Path, help="the engine's output directory")
    arguments = parser.parse_args()
    if arguments.what == "compare":
        return compare(arguments.stock, arguments.ours)
    build(arguments.version)
    return 0


if __name__ == "__main__":
    sys.exit(main())
