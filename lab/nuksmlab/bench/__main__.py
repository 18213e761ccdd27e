# SPDX-License-Identifier: GPL-2.0-only
"""The benchmark, from the host: boots, collects, makes the table and the picture.

all:     builds the kernels; then all others but trees, with one CPU
index:   four indexes in one boot, and the same kernel without the engine
steady:  scanning what was scanned before, and tenants that come, in one boot
neighbour: what such scans cost a program on another CPU
domains: what merge domains cost
looks:   what looks cost virtual machines, in an emulated machine
trees:   how many trees are best when checksums decide
report:  table and picture again, from what was measured
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nuksmlab import guard, kernels, machine, paths, uml
from nuksmlab.alone import alone
from nuksmlab.bench import (
    domains,
    figures,
    host,
    looks,
    neighbour,
    plan,
    records,
    report,
    steady,
)
from nuksmlab.bench.goals import Report
from nuksmlab.bench.meter import Meter
from nuksmlab.bench.records import Result, Run

# Two copies of 2048 MiB, what the kernel keeps about their pages, and the rest.
# The same for each size, because it decides how many trees there are.
GUEST_MIB = 5120
# Four tenants of 128 MiB, or 128 of 2.
SCANS_GUEST_MIB = 1024
BOOT_SECONDS = 7200.0
ALL = ("index", "steady", "neighbour", "domains", "looks")


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
    everything = commands.add_parser("all")
    everything.add_argument("--version", default=kernels.DEFAULT, help="of Linux")
    everything.add_argument("--quick", action="store_true", help="in small, once")
    everything.add_argument("--cpus", type=int, help="of the guest; default: 1")
    index = commands.add_parser("index")
    index.add_argument("--stock", type=Path, required=True, help="without the engine")
    index.add_argument("--quick", action="store_true", help="256 MiB, once")
    index.add_argument("--cpus", type=int, default=1, help="of the guest; default: 1")
    index.add_argument(
        "--name", default="index", help="under which build/bench has the results"
    )
    scans = commands.add_parser("steady")
    scans.add_argument("--quick", action="store_true", help="64 MiB, once")
    scans.add_argument(
        "--name", default="steady", help="under which build/bench has the results"
    )
    beside = commands.add_parser("neighbour")
    beside.add_argument("--quick", action="store_true", help="64 MiB, once")
    beside.add_argument(
        "--name", default="neighbour", help="under which build/bench has the results"
    )
    apart = commands.add_parser("domains")
    apart.add_argument("--quick", action="store_true", help="1 MiB each, once")
    apart.add_argument(
        "--name", default="domains", help="under which build/bench has the results"
    )
    looked_at = commands.add_parser("looks")
    looked_at.add_argument("--quick", action="store_true", help="two turns, once")
    looked_at.add_argument(
        "--name", default="looks", help="under which build/bench has the results"
    )
    trees = commands.add_parser("trees")
    for experiment in (index, scans, beside, apart, looked_at, trees):
        experiment.add_argument("--kernel", type=Path, required=True)
    again = commands.add_parser("report")
    again.add_argument(
        "experiment",
        help="index, steady, neighbour, domains, looks, trees or another --name",
    )
    return parser.parse_args()


def new_folder(name: str, where: host.Host) -> Path:
    """For raw data, empty; what was measured there under this name is gone."""
    raw = report.OUTPUT / name
    shutil.rmtree(raw, ignore_errors=True)
    raw.mkdir(parents=True)
    report.write_host(name, where)
    return raw


def show(made: Report) -> int:
    """Returns the exit status: 1 if a goal is missed."""
    print(f"\n{made.text}\nbench: {made.verdict}", flush=True)
    return 0 if made.holds else 1


def run_guest(
    module: str, guest: uml.Guest, output: Path, runs: Sequence[object]
) -> Meter:
    """Has a guest make `runs` into samples.jsonl; returns its CPU time by moment."""
    output.mkdir(parents=True)
    (output / "plan.json").write_text(json.dumps(runs))
    print(f"\n{output.relative_to(paths.REPOSITORY)}: {len(runs)} runs", flush=True)
    with Meter(guest.kernel, output) as meter:
        command = [sys.executable, "-m", f"nuksmlab.bench.{module}"]
        status = uml.boot(guest, command, output, BOOT_SECONDS)
    if status != 0:
        raise machine.MachineError(f"the benchmark ended with status {status}")
    return meter


def measure(boot: Boot, output: Path, runs: Sequence[Run], cpus: int) -> list[Result]:
    guest = uml.Guest(boot.kernel, GUEST_MIB, cpus)
    meter = run_guest("guest", guest, output, runs)
    return [
        records.result(sample, meter.seconds)
        for sample in records.read_lines(output / "samples.jsonl")
    ]


def experiment(
    name: str, extent: plan.Extent, boots: Sequence[Boot], cpus: int = 1
) -> int:
    host.check_room(GUEST_MIB)
    raw = new_folder(name, host.describe())
    results: list[Result] = []
    with host.many_mappings():
        for repetition in range(extent.repetitions):
            for boot in boots:
                output = raw / f"{repetition}-{boot.name}"
                runs = plan.runs(extent, boot.indexes, repetition)
                results += measure(boot, output, runs, cpus)
                report.write_results(name, results)
    wrong = figures.contradictions(results)
    for contradiction in wrong:
        print(f"bench: BROKEN: {contradiction}", file=sys.stderr)
    return max(show(report.make(name)), int(bool(wrong)))


def scans(name: str, kernel: Path, extent: steady.Extent) -> int:
    """new.json, steady.json and arrival.json, or so, and their tables."""
    host.check_room(SCANS_GUEST_MIB)
    raw = new_folder(name, host.describe())
    new: list[steady.New] = []
    measured: list[steady.Steady] = []
    arrivals: list[steady.Arrival] = []
    with host.many_mappings():
        for repetition in range(extent.repetitions):
            output = raw / str(repetition)
            guest = uml.Guest(kernel, SCANS_GUEST_MIB)
            runs = steady.runs(extent, repetition)
            meter = run_guest("steady_guest", guest, output, runs)
            for sample in records.read_lines(output / "samples.jsonl"):
                if sample["run"]["experiment"] == "new":
                    new.append(steady.new_result(sample, meter.seconds))
                elif sample["run"]["experiment"] == "steady":
                    measured.append(steady.steady_result(sample, meter.seconds))
                else:
                    arrivals.append(steady.arrival_result(sample, meter.seconds))
            report.write_results(report.beside_name(name, "new"), new)
            report.write_results(name, measured)
            report.write_results(report.beside_name(name, "arrival"), arrivals)
    return show(report.make_steady(name))


@contextmanager
def neighbour_runs(cpu: int, kib: int, output: Path) -> Iterator[None]:
    """A program that uses so much of the cache, on a CPU that nothing else here has.

    What it says once a second is in `output`.
    """
    cpus = os.sched_getaffinity(0)
    command = [str(paths.NEIGHBOUR), str(cpu), str(kib)]
    with output.open("wb") as said:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said)
    os.sched_setaffinity(0, cpus - {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus)
        assert process.stdin
        process.stdin.close()
        status = process.wait()
    if status != 0:
        raise machine.MachineError(f"{command[0]} ended with status {status}")


def beside(name: str, kernel: Path, extent: neighbour.Extent) -> int:
    """neighbour.json, or so, and its table."""
    host.check_room(SCANS_GUEST_MIB)
    cpu, where = host.neighbour_cpu(), host.describe()
    raw = new_folder(name, where)
    results: list[neighbour.Neighbour] = []
    with host.many_mappings():
        for repetition in range(extent.repetitions):
            output, said = raw / str(repetition), raw / f"{repetition}.jsonl"
            guest = uml.Guest(kernel, SCANS_GUEST_MIB)
            runs = neighbour.runs(extent, repetition)
            with neighbour_runs(cpu, neighbour.table_kib(where), said):
                meter = run_guest("neighbour_guest", guest, output, runs)
            seconds = records.read_lines(said)
            results += [
                neighbour.result(sample, meter.seconds, seconds)
                for sample in records.read_lines(output / "samples.jsonl")
            ]
            report.write_results(name, results)
    return show(report.make_neighbour(name))


def apart(name: str, kernel: Path, extent: domains.Extent) -> int:
    """domains.json, or so, and its table."""
    host.check_room(SCANS_GUEST_MIB)
    raw = new_folder(name, host.describe())
    results: list[domains.Cost] = []
    with host.many_mappings():
        for repetition in range(extent.repetitions):
            output = raw / str(repetition)
            guest = uml.Guest(kernel, SCANS_GUEST_MIB)
            runs = domains.runs(extent, repetition)
            meter = run_guest("domains_guest", guest, output, runs)
            results += [
                domains.cost_result(sample, meter.seconds)
                for sample in records.read_lines(output / "samples.jsonl")
            ]
            report.write_results(name, results)
    return show(report.make_domains(name))


def looked_at(name: str, kernel: Path, extent: looks.Extent) -> int:
    """looks.json, or so, and its table.

    An emulated processor can reset a virtual machine (docs/stress.md). Whole turns
    count then, and the others are made in one boot more, which the report tells.
    """
    raw = new_folder(name, host.describe())
    results: list[looks.Took] = []
    boot = 0
    for repetition in range(extent.repetitions):
        left = looks.runs(extent, repetition)
        while left:
            if boot > repetition + looks.MOST_ENDED:
                raise machine.MachineError(f"{raw}: too many boots ended in the middle")
            output = raw / str(boot)
            output.mkdir()
            left = [{**run, "boot": boot} for run in left]
            (output / "plan.json").write_text(json.dumps(left))
            machine.boot_for_guests(
                looks.MACHINE,
                kernel,
                "nuksmlab.bench.looks_guest",
                [kernel],
                output,
                seconds=BOOT_SECONDS,
            )
            whole = looks.whole_turns(records.read_lines(output / "samples.jsonl"))
            results += whole
            report.write_results(name, results)
            done = {one["run"]["turn"] for one in whole}
            left = [run for run in left if run["turn"] not in done]
            boot += 1
    return show(report.make_looks(name))


# What is measured in one boot after the other, and the module that has its sizes.
MEASURES: dict[str, tuple[Callable[[str, Path, Any], int], Any]] = {
    "steady": (scans, steady),
    "neighbour": (beside, neighbour),
    "domains": (apart, domains),
    "looks": (looked_at, looks),
}


def carry_out(arguments: argparse.Namespace) -> int:
    if arguments.command == "report":
        return show(report.make_any(arguments.experiment))
    if arguments.command in MEASURES:
        measure_one, its = MEASURES[arguments.command]
        size = its.QUICK if arguments.quick else its.FULL
        return measure_one(arguments.name, arguments.kernel, size)
    if arguments.command == "trees":
        boots = [Boot("nuksm", arguments.kernel, plan.FORESTS)]
        return experiment("trees", plan.TREES, boots)
    extent = plan.QUICK if arguments.quick else plan.FULL
    boots = [
        Boot("nuksm", arguments.kernel, plan.INDEXES),
        Boot("stock", arguments.stock, plan.UNPATCHED),
    ]
    return experiment(arguments.name, extent, boots, arguments.cpus)


def attempt(arguments: argparse.Namespace) -> int:
    try:
        return carry_out(arguments)
    except (machine.MachineError, host.HostError, FileNotFoundError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1


def all_of_them(arguments: argparse.Namespace) -> int:
    """Under names with the version and the CPUs, if these are others than by default.

    One that fails does not keep the others from being run.
    """
    config = "um-smp" if arguments.cpus else "um"
    try:
        kernel = kernels.build(config, arguments.version)
        stock = kernels.build(f"{config}-stock", arguments.version)
        of_nodes = kernels.build("lab", arguments.version)
    except kernels.KernelError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    kind = "" if arguments.version == kernels.DEFAULT else f"-{arguments.version}"
    if arguments.cpus:
        kind += f"-{arguments.cpus}cpus"
    return max(
        attempt(
            argparse.Namespace(
                command=command,
                kernel=of_nodes if command == "looks" else kernel,
                stock=stock,
                quick=arguments.quick,
                cpus=arguments.cpus or 1,
                name=f"{command}{kind}",
            )
        )
        for command in (ALL[:1] if arguments.cpus else ALL)
    )


def main() -> int:
    guard.unwind_when_terminated()
    arguments = parse_arguments()
    with alone(report.OUTPUT):
        if arguments.command == "all":
            return all_of_them(arguments)
        return attempt(arguments)


if __name__ == "__main__":
    sys.exit(main())
