# SPDX-License-Identifier: GPL-2.0-only
"""One command in a guest.

`python -m nuksmlab run`: in a machine of several nodes.
`python -m nuksmlab uml`: in a User-Mode Linux kernel.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from nuksmlab import accelerator, counter, guard, kernels, machine, paths, uml
from nuksmlab.alone import alone


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="nuksmlab",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = result.add_subparsers(required=True, dest="how")
    run = commands.add_parser("run", help="in a machine of several nodes")
    run.add_argument("--nodes", type=int, default=2)
    run.add_argument("--kernel", help="vmlinuz to boot; default: Debian's 6.12")
    run.add_argument("--append", default="", help="kernel arguments")
    run.add_argument(
        "--count",
        action="store_true",
        help="emulate, and count DRAM accesses between marks into counts.jsonl",
    )
    run.add_argument(
        "--slow-tier",
        action="store_true",
        help="one node more, of slow memory and without a CPU",
    )
    run.add_argument(
        "--nested",
        action="store_true",
        help="emulate so that guests by KVM can run inside",
    )
    umls = commands.add_parser("uml", help="in a User-Mode Linux kernel")
    umls.add_argument("--kernel", type=Path, help="to boot; default: ours")
    umls.add_argument("--version", default=kernels.DEFAULT, help="of ours")
    for command in (run, umls):
        command.add_argument(
            "--memory-mib", type=int, default=1024, help="of each node"
        )
        command.add_argument(
            "--deadline",
            type=float,
            default=1800,
            help="seconds without a word after which the machine hangs",
        )
        command.add_argument(
            "--output",
            type=Path,
            default=paths.BUILD / "run",
            help="directory that the command may write to, as $NUKSM_OUTPUT",
        )
        command.add_argument(
            "command", nargs="+", help="after --, in the repository's root"
        )
    return result


def boot(arguments: argparse.Namespace, lock: int) -> int:
    if arguments.how == "uml":
        own = arguments.kernel or kernels.build("um", arguments.version)
        return uml.boot(
            uml.Guest(own, arguments.memory_mib),
            arguments.command,
            arguments.output,
            arguments.deadline,
            held=[lock],
        )
    kernel = kernels.find(arguments.kernel)
    paths.BUILD.mkdir(exist_ok=True)
    shape = machine.Machine(arguments.nodes, arguments.memory_mib, arguments.slow_tier)
    qemu_options = ""
    if arguments.count:
        (arguments.output / counter.COUNTS).unlink(missing_ok=True)
        qemu_options = counter.qemu_options(shape, counter.Caches(), arguments.output)
    run = partial(
        machine.boot,
        shape,
        kernel,
        arguments.command,
        arguments.output,
        kvm=not arguments.count and accelerator.kvm_works(kernel),
        nested=arguments.nested,
        seconds=arguments.deadline,
        append=arguments.append,
        qemu_options=qemu_options,
        held=[lock],
    )
    try:
        return run()
    except machine.BootError as error:
        if arguments.kernel:
            raise
        # docs/decisions/0009-a-stock-kernel-is-booted-once-more.md
        kept = arguments.output / "console-died.txt"
        (arguments.output / machine.CONSOLE).replace(kept)
        print(f"{error}\nthe console is in {kept}; booting once more", flush=True)
        return run()


def main() -> int:
    guard.unwind_when_terminated()
    try:
        arguments = parser().parse_args()
        with alone(arguments.output.absolute()) as lock:
            return boot(arguments, lock)
    except (kernels.KernelError, machine.MachineError) as error:
        print(f"nuksmlab: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
