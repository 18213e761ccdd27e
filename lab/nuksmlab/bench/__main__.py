# SPDX-License-Identifier: GPL-2.0-only
"""The benchmark, from the host: boots, collects, makes the table and the picture.

index:   four indexes in one boot, and the same kernel without the engine
trees:   how many trees are best when checksums decide
report:  table and picture again, from what was measured
"""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nuksmlab import guard, machine, paths, uml
from nuksmlab.bench import figures, host, plan, records, report
from nuksmlab.bench.meter import Meter
from nuksmlab.bench.records import Result, Run

# Two copies of 2048 MiB, what the kernel keeps about their pages, and the rest.
# The same for each size, because it decides how many trees there are.
GUEST_MIB = 5120
BOOT_SECONDS = 7200.0


@dataclass(frozen=True)
class Boot:
    """A kernel, and what is measured on it in each repetition."""

    name: str
    kernel: Path
    indexes: Sequence[plan.Index]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="nuksmlab.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, dest="command")
    index = commands.add_parser("index")
    index.add_argument("--stock", type=Path, required=True, help="without the engine")
    index.add_argument("--quick", action="store_true", help="256 MiB, once")
    index.add_argument("--cpus", type=int, default=1, help="of the guest; default: 1")
    index.add_argument(
        "--name", default="index", help="under which build/bench has the results"
    )
    trees = commands.add_parser("trees")
    for experiment in (index, trees):
        experiment.add_argument("--kernel", type=Path, required=True)
    again = commands.add_parser("report")
    again.add_argument("experiment", help="index, trees or another --name")
    return parser.parse_args()


def measure(boot: Boot, output: Path, runs: Sequence[Run], cpus: int) -> list[Result]:
    output.mkdir(parents=True)
    (output / "plan.json").write_text(json.dumps(runs))
    print(f"\n{output.relative_to(paths.REPOSITORY)}: {len(runs)} runs", flush=True)
    with Meter(boot.kernel, output) as meter:
        status = uml.boot(
            uml.Guest(boot.kernel, GUEST_MIB, cpus),
            [sys.executable, "-m", "nuksmlab.bench.guest"],
            output,
            BOOT_SECONDS,
        )
    if status != 0:
        raise machine.MachineError(f"the benchmark ended with status {status}")
    return [
        records.result(sample, meter.seconds)
        for sample in records.read_samples(output / "samples.jsonl")
    ]


def experiment(
    name: str, extent: plan.Extent, boots: Sequence[Boot], cpus: int = 1
) -> int:
    host.check_room(GUEST_MIB)
    raw = report.OUTPUT / name
    shutil.rmtree(raw, ignore_errors=True)
    raw.mkdir(parents=True)
    report.write_host(name, host.describe())
    results: list[Result] = []
    with host.many_mappings():
        for repetition in range(extent.repetitions):
            for boot in boots:
                output = raw / f"{repetition}-{boot.name}"
                runs = plan.runs(extent, boot.indexes, repetition)
                results += measure(boot, output, runs, cpus)
                report.write_results(name, results)
    print(f"\n{report.make(name)}")
    wrong = figures.contradictions(results)
    for contradiction in wrong:
        print(f"bench: BROKEN: {contradiction}", file=sys.stderr)
    return 1 if wrong else 0


def carry_out(arguments: argparse.Namespace) -> int:
    if arguments.command == "report":
        print(report.make(arguments.experiment))
        return 0
    if arguments.command == "trees":
        boots = [Boot("nuksm", arguments.kernel, plan.FORESTS)]
        return experiment("trees", plan.TREES, boots)
    extent = plan.QUICK if arguments.quick else plan.FULL
    boots = [
        Boot("nuksm", arguments.kernel, plan.INDEXES),
        Boot("stock", arguments.stock, plan.UNPATCHED),
    ]
    return experiment(arguments.name, extent, boots, arguments.cpus)


def main() -> int:
    guard.unwind_when_terminated()
    try:
        return carry_out(parse_arguments())
    except (machine.MachineError, host.HostError, FileNotFoundError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
