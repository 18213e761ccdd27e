# SPDX-License-Identifier: GPL-2.0-only
"""The demonstration, from the host: boots, shows the table, checks the claims."""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import cast

from nuksmlab import accelerator, guard, kernels, machine, paths, wait
from nuksmlab.alone import alone
from nuksmlab.demo import claims, table
from nuksmlab.demo.records import Observed, summarize

NODE_MIB = 768
DEADLINE_SECONDS = wait.HANG_SECONDS + 300  # longer than a wait in it
OUTPUT = paths.BUILD / "demo"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--nodes", type=int, choices=range(2, 9), default=2)
    parser.add_argument(
        "--kernel", help="vmlinuz to boot, or nuksm: ours; default: Debian's 6.12"
    )
    return parser.parse_args()


def observe(kernel: Path, nodes: int) -> Observed:
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    kvm = accelerator.kvm_works(kernel)
    how = "KVM" if kvm else "emulation, as KVM does not work here"
    print(f"booting {kernel.name} on {nodes} nodes by {how}", flush=True)
    status = machine.boot(
        machine.Machine(nodes, NODE_MIB),
        kernel,
        [sys.executable, "-m", "nuksmlab.demo.guest"],
        OUTPUT,
        kvm=kvm,
        seconds=DEADLINE_SECONDS,
    )
    if status != 0:
        raise machine.MachineError(f"the demonstration ended with status {status}")
    return cast(Observed, json.loads((OUTPUT / "observed.json").read_text()))


def show(arguments: argparse.Namespace) -> int:
    try:
        observed = observe(kernels.find(arguments.kernel), arguments.nodes)
    except (kernels.KernelError, machine.MachineError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    summary = summarize(observed)
    file = OUTPUT / "summary.json"
    file.write_text(json.dumps(summary, indent=1) + "\n")
    print(f"\n{table.render(summary)}")
    broken = claims.broken(observed)
    for claim in broken:
        print(f"demo: BROKEN: {claim}", file=sys.stderr)
    if not broken:
        print("Every page is intact, no sharing was lost, every share is on target.")
    print(f"Summary: {file.relative_to(paths.REPOSITORY)}; raw passes beside it")
    return 1 if broken else 0


def main() -> int:
    guard.unwind_when_terminated()
    arguments = parse_arguments()
    with alone(OUTPUT):
        return show(arguments)


if __name__ == "__main__":
    sys.exit(main())
