# SPDX-License-Identifier: GPL-2.0-only
"""Reproduces the paper's figures and tables, and writes a report on them.

What was run before from the same inputs is kept. The report is made of all that
is there, even if only one experiment was asked for.
"""

import argparse
import os
import shutil
import sys
from pathlib import Path

from nuksmlab import guard, kernels, paths
from nuksmlab.alone import alone
from nuksmlab.paper import experiments, extent, jobs, model, report
from nuksmlab.paper.extent import Extent
from nuksmlab.paper.model import Hardware
from nuksmlab.paper.section import Section
from nuksmlab.paper.where import Emulation, Host, Where


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="nuksmlab.paper",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [experiment.name for experiment in experiments.ALL]
    parser.add_argument(
        "--experiment",
        choices=names,
        help="default: all; in full without replicas, which are not the paper's, "
        "and on this machine without what needs no nodes",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small, for a few minutes; with --host only to see whether all of it runs",
    )
    parser.add_argument(
        "--host",
        action="store_true",
        help="on this machine, as root; measures time, and packs what it finds",
    )
    parser.add_argument(
        "--at-once",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="machines at the same time, each of which keeps one CPU busy; "
        "default: as many as there are CPUs",
    )
    parser.add_argument("--kernel", default="nuksm", help="default: ours")
    parser.add_argument(
        "--output", type=Path, help="default: build/paper, and a name for each size"
    )
    parser.add_argument(
        "--hardware",
        type=Path,
        default=model.PAPERS_MACHINE,
        help="latencies to model run times with, as TOML; default: the paper's",
    )
    parser.add_argument(
        "--report", action="store_true", help="only that, from what is there"
    )
    return parser.parse_args()


def make_report(
    output: Path, size: Extent, where: Where, hardware: Hardware
) -> list[Section]:
    found = [
        experiment.gather(output / "raw", size, where, hardware)
        for experiment in experiments.ALL
    ]
    sections = [each.section for each in found if each.section]
    missing = [name for each in found for name in each.missing]
    kept = {name: done for each in found for name, done in each.kept.items()}
    modelled = None if isinstance(where, Host) else hardware
    print(report.write(output, sections, missing, kept, modelled))
    if missing:
        print(f"not run, or of an older state: {', '.join(missing)}")
    return sections


def verdict(sections: list[Section], *, forgive_clock: bool) -> bool:
    """Whether all goals hold, but perhaps for those that depend on the host's load."""
    checks = [check for section in sections for check in section.checks]
    failed = [check for check in checks if not check.holds]
    forgiven = [check for check in failed if check.by_clock and forgive_clock]
    for check in failed:
        kind = " (by the clock: forgiven in small)" if check in forgiven else ""
        print(
            f"paper: {check.what}: {check.found}, wanted {check.goal}{kind}",
            file=sys.stderr,
        )
    print(f"{len(checks) - len(failed)} of {len(checks)} goals hold")
    return len(failed) == len(forgiven)


def pack(output: Path) -> Path:
    """What was found on a machine that others do not have, in one file."""
    return Path(
        shutil.make_archive(str(output), "gztar", output.parent, output.name)
    ).absolute()


# By whether it is this machine, and whether it is in small: how much, and where to.
SIZES = {
    (False, False): (extent.FULL, "paper"),
    (False, True): (extent.QUICK, "paper-quick"),
    (True, False): (extent.HOST, "paper-host"),
    (True, True): (extent.REHEARSAL, "paper-rehearsal"),
}


def run(arguments: argparse.Namespace, size: Extent, output: Path) -> int:
    hardware = model.read_hardware(arguments.hardware)
    where = Host() if arguments.host else Emulation(kernels.find(arguments.kernel))
    planned = [
        job
        for experiment in experiments.wanted(arguments.experiment, size)
        if not arguments.report
        for job in experiment.jobs(output / "raw", size, where)
    ]
    done = jobs.run_all(planned, arguments.at_once)
    sections = make_report(output, size, where, hardware)
    held = verdict(sections, forgive_clock=arguments.quick)
    if arguments.host:
        print(f"to be sent to who asked for it: {pack(output)}")
    rehearsed = size is extent.REHEARSAL
    if rehearsed:
        print("this was a rehearsal: goals that do not hold say nothing")
    return 0 if done and (held or rehearsed) else 1


def main() -> int:
    guard.unwind_when_terminated()
    arguments = parse_arguments()
    size, folder = SIZES[arguments.host, arguments.quick]
    output = (arguments.output or paths.BUILD / folder).absolute()
    output.mkdir(parents=True, exist_ok=True)
    try:
        with alone(output):
            return run(arguments, size, output)
    except (*jobs.FAILURES, OSError) as error:
        print(f"paper: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
