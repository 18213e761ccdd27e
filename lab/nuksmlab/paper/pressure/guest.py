# SPDX-License-Identifier: GPL-2.0-only
"""The runs, inside User-Mode Linux: what plan.json says, into observed.jsonl."""

import json
import os
import re
import time
from contextlib import ExitStack
from pathlib import Path

from nuksmlab.ksm import Ksm
from nuksmlab.paper.pressure.plan import WORST
from nuksmlab.paper.pressure.records import Moment, Observed, Run
from nuksmlab.processes import pid_of
from nuksmlab.tenant import ANYWHERE, Spec, Tenant, TenantError

OUTPUT = Path(os.environ["NUKSM_OUTPUT"])
PAGE_BYTES = 4096
SAMPLE_SECONDS = 0.1
# Pages per round as in the paper; less of a break, since memory is less, too.
SPEED = {"pages_to_scan": 10000, "sleep_millisecs": 10}
# All that is wanted is over when this much more time has passed.
PATIENCE_SECONDS = 60.0
KEEP, SACRIFICE = -1000, 500


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_mib() -> float:
    match = re.search(r"MemFree: +([0-9]+)", Path("/proc/meminfo").read_text())
    assert match is not None
    return int(match[1]) / 1024


def set_chance(pid: int, adjustment: int) -> None:
    """Of being killed when memory is short."""
    Path(f"/proc/{pid}/oom_score_adj").write_text(str(adjustment))


class Race:
    """ksmd against the job, from the moment that both start."""

    def __init__(self, ksm: Ksm, run: Run, stack: ExitStack) -> None:
        self.ksm = ksm
        self.run = run
        self.stack = stack
        self.tenants: list[Tenant] = []
        self.moments: list[Moment] = []
        self.ksmd = pid_of("ksmd")

    def start_tenant(self, name: str, mib: int, **shares: int) -> None:
        """A child has its own chance; a death is not an error here."""
        shares = {"equal": 0} | shares
        tenant = Tenant(Spec(name, ANYWHERE, mib, madvised=True, **shares))
        self.stack.callback(end, tenant)
        set_chance(tenant.pid, SACRIFICE)
        self.tenants.append(tenant)

    def prepare(self) -> None:
        self.ksm.unmerge()
        self.ksm.write_text("index", self.run["index"])
        if self.run["kib_per_tree"] is not None:
            self.ksm.write("kib_per_tree", self.run["kib_per_tree"])
        self.ksm.set_speed(SPEED)
        kind = "alike" if self.run["data"] == WORST else "equal"
        for number in (0, 1):
            name = f"instance-{number}"
            self.start_tenant(name, self.run["instance_mib"], **{kind: 100})

    def killed(self) -> list[str]:
        return [t.spec.name for t in self.tenants if t.process.poll() is not None]

    def sample(self, began: float, cpu: float, allocated: int) -> None:
        self.moments.append(
            {
                "seconds": time.monotonic() - began,
                "free_mib": free_mib(),
                "saved_mib": self.ksm.read("pages_sharing") * PAGE_BYTES / 2**20,
                "ksmd_seconds": cpu_seconds(self.ksmd) - cpu,
                "allocated_mib": allocated,
            }
        )

    def hold(self) -> list[str]:
        """Until all is merged, or somebody was killed; says who."""
        self.prepare()
        began, cpu, steps = time.monotonic(), cpu_seconds(self.ksmd), 0
        self.ksm.start()
        enough = 0.99 * self.run["instance_mib"]
        while True:
            now = time.monotonic() - began
            self.sample(began, cpu, steps * self.run["step_mib"])
            done = self.moments[-1]["saved_mib"] >= enough
            if self.killed() or (done and steps == self.run["steps"]):
                return self.killed()
            if now > self.run["steps"] * self.run["interval"] + PATIENCE_SECONDS:
                return self.killed()
            if steps < self.run["steps"] and now >= steps * self.run["interval"]:
                try:
                    self.start_tenant(f"job-{steps}", self.run["step_mib"], private=100)
                except (TenantError, OSError):
                    return [*self.killed(), f"job-{steps}"]
                steps += 1
                continue
            time.sleep(SAMPLE_SECONDS)


def end(tenant: Tenant) -> None:
    tenant.process.kill()
    tenant.process.communicate()


def observe(ksm: Ksm, run: Run) -> Observed:
    with ExitStack() as stack:
        race = Race(ksm, run, stack)
        killed = race.hold()
        ksm.stop()
    return {"run": run, "moments": race.moments, "killed": killed}


def main() -> None:
    set_chance(os.getpid(), KEEP)
    ksm = Ksm()
    default_kib = ksm.read("kib_per_tree")
    runs: list[Run] = json.loads((OUTPUT / "plan.json").read_text())
    with (OUTPUT / "observed.jsonl").open("w") as lines:
        for number, run in enumerate(runs, 1):
            ksm.unmerge()
            ksm.write("kib_per_tree", default_kib)
            observed = observe(ksm, run)
            lines.write(f"{json.dumps(observed)}\n")
            lines.flush()
            last = observed["moments"][-1]
            print(
                f"  {number}/{len(runs)}  {run['configuration']:15}  "
                f"{run['data']} data, a step each {run['interval']} s: "
                f"{', '.join(observed['killed']) or 'nobody'} killed, "
                f"{last['allocated_mib']} MiB allocated, {last['saved_mib']:.0f} MiB "
                f"saved after {last['seconds']:.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
