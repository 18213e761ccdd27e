# SPDX-License-Identifier: GPL-2.0-only
"""Runs the stress test in machines, one after the other, for as long as it is told.

Every round is added to build/fuzz/journal.jsonl, also when this is interrupted:
started again, it goes on with other seeds. It ends at the first failure, and
tells how to repeat it.
"""

import argparse
import random
import sys
import time

from nuksmlab import accelerator, guard, kernels, machine, paths
from nuksmlab.alone import alone
from nuksmlab.fuzz import journal

JOURNAL = paths.BUILD / "fuzz" / "journal.jsonl"
NODE_MIB = 768
# A machine's life: what it leaks is looked for at its end.
MACHINE_SECONDS = 1800.0
SPARE_SECONDS = 1200.0  # to boot, and to look for leaks
APPEND = "kmemleak=on movablecore=50%"
TEST = "lab/engine_tests/test_stress.py"


def command(seconds: float, seed: int) -> list[str]:
    return [
        *("env", f"NUKSM_STRESS_SECONDS={seconds:.0f}", f"NUKSM_STRESS_SEED={seed}"),
        *(sys.executable, "-m", "pytest", "-v", "-c", "lab/pyproject.toml"),
        *("-p", "no:cacheprovider", "--tb", "short", TEST, "-m", "stress"),
    ]


class Campaign:
    """Machines of one kind."""

    def __init__(self, kernel: str, nodes: int) -> None:
        self.kernel, self.nodes = kernel, nodes
        self.image = kernels.find(kernel)
        self.output = paths.BUILD / "fuzz" / f"{kernel}-{nodes}".replace("/", "_")

    def boot(self, seconds: float, seed: int) -> bool:
        """One machine's rounds; true if none of them, nor the kernel, failed."""
        noted = self.output / journal.ROUNDS
        noted.unlink(missing_ok=True)
        unended = journal.INTERRUPTED
        try:
            passed = self._run(seconds, seed)
            unended = journal.FAILED
        finally:
            text = noted.read_text() if noted.exists() else ""
            entries = journal.rounds(
                text, self.kernel, self.image.name, self.nodes, unended
            )
            journal.add(JOURNAL, entries)
            # A machine may have ended before its first round.
            self.last_seed = entries[-1].seed if entries else seed
        return passed

    def _run(self, seconds: float, seed: int) -> bool:
        try:
            status = machine.boot(
                machine.Machine(self.nodes, NODE_MIB),
                self.image,
                command(seconds, seed),
                self.output,
                kvm=accelerator.kvm_works(self.image),
                seconds=seconds + SPARE_SECONDS,
                append=APPEND,
                parallel=kernels.needs_parallel_cpus(self.kernel),
            )
        except machine.MachineError as error:
            print(f"nuksmlab: {error}", file=sys.stderr)
            return False
        return status == 0


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="nuksmlab.fuzz", description=__doc__)
    result.add_argument("--kernel", default="nuksm-debug")
    result.add_argument("--nodes", type=int, default=2, choices=range(2, 9))
    result.add_argument("--seconds", type=float, default=180.0)
    result.add_argument("--seed", type=int, help="of the first round; default: any")
    return result


def go_on(campaign: Campaign, seconds: float, seed: int | None) -> bool:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        first = random.SystemRandom().getrandbits(32) if seed is None else seed
        seed = None
        if not campaign.boot(min(left, MACHINE_SECONDS), first):
            print(
                f"a round failed: its output is in {campaign.output}\n"
                f"to repeat it: make stress KERNEL={campaign.kernel}"
                f" NODES={campaign.nodes} SEED={campaign.last_seed}"
            )
            return False
    return True


def main() -> int:
    options = parser().parse_args()
    guard.unwind_when_terminated()
    try:
        campaign = Campaign(options.kernel, options.nodes)
        with alone(campaign.output):
            passed = go_on(campaign, options.seconds, options.seed)
    except kernels.KernelError as error:
        print(f"nuksmlab: {error}", file=sys.stderr)
        return 1
    finally:
        print(f"{JOURNAL}:\n{journal.table(journal.read(JOURNAL))}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
