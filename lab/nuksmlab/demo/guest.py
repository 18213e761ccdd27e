# SPDX-License-Identifier: GPL-2.0-only
"""The demonstration's phases, run inside the machine.

Writes all it sees to $NUKSM_OUTPUT/observed.json, and each raw pass beside it.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path

from nuksmlab import numa, program
from nuksmlab.demo import paper
from nuksmlab.demo.records import Observed, Phase, SeenTenant
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import Spec, Tenant

TENANT_MIB = 32
OUTPUT = Path(os.environ["NUKSM_OUTPUT"])


def say(text: str) -> None:
    print(text, flush=True)


def specs(nodes: Sequence[int]) -> list[Spec]:
    return [
        Spec(f"vm-{node}", node, TENANT_MIB, equal=80, private=10, changing=10)
        for node in nodes
    ]


def see(tenants: Sequence[Tenant], status: program.Status) -> list[SeenTenant]:
    by_pid = {entry["pid"]: entry for entry in status["tenants"]}
    return [
        {
            "name": tenant.spec.name,
            "node": by_pid[tenant.pid]["node"],
            "nice": by_pid[tenant.pid]["nice"],
            "merged_pages": by_pid[tenant.pid]["merged_pages"],
            "local_pages": by_pid[tenant.pid]["local_pages"],
            "kernel_local_pages": tenant.equal_pages_by_node().get(tenant.spec.node, 0),
        }
        for tenant in tenants
    ]


def place(tenants: Sequence[Tenant], name: str, policy: str, ksm: Ksm) -> Phase:
    """Two passes: what one left undone, the second would move."""
    say(f"{name}: nuksm place --once --policy {policy}, twice")
    for tenant in tenants:
        tenant.command("change")
    before = ksm.counters()
    passes = []
    for _ in range(2):
        passes.append(program.place_once(policy))
        ksm.settle()
    after = ksm.counters()
    for number, record in enumerate(passes, start=1):
        file = OUTPUT / f"{name.replace(' ', '-').replace(':', '-')}-pass-{number}.json"
        file.write_text(json.dumps(record, indent=1) + "\n")
    say(f"  moved {passes[0]['moved']} pages, then {passes[1]['moved']}")
    return phase(tenants, name, passes, before, after)


def phase(
    tenants: Sequence[Tenant],
    name: str,
    passes: list[program.Pass],
    before: dict[str, int],
    after: dict[str, int],
) -> Phase:
    status = program.status()
    return {
        "name": name,
        "passes": passes,
        "pages_shared": (before["pages_shared"], after["pages_shared"]),
        "pages_sharing": (before["pages_sharing"], after["pages_sharing"]),
        "tenants": see(tenants, status),
        "status": status,
    }


def merge(tenants: Sequence[Tenant], ksm: Ksm) -> Phase:
    mappings = sum(tenant.equal_pages for tenant in tenants)
    say(f"ksm: the stock kernel merges {mappings} equal pages")
    ksm.merge(mappings)
    counters = ksm.counters()
    say(f"  {counters['pages_shared']} pages are left of them")
    return phase(tenants, "ksm", [], counters, counters)


def by_priority(tenants: Sequence[Tenant], pair: paper.NicePair, ksm: Ksm) -> Phase:
    for tenant, nice in zip(tenants, itertools.cycle(pair.nice), strict=False):
        tenant.renice(nice)
    return place(tenants, f"priority {pair.name}", "priority", ksm)


def verify(tenants: Sequence[Tenant]) -> dict[str, int]:
    say("verifying every byte of every tenant")
    bad = {tenant.spec.name: tenant.bad_pages() for tenant in tenants}
    say(f"  pages with wrong content: {sum(bad.values())}")
    return bad


def main() -> None:
    nodes = numa.online()
    ksm = Ksm()
    say(f"up: Linux {os.uname().release}, {len(nodes)} nodes")
    with contextlib.ExitStack() as stack:
        tenants = []
        for spec in specs(nodes):
            say(f"starting tenant {spec.name} on node {spec.node}, {spec.mib} MiB")
            tenants.append(stack.enter_context(Tenant(spec)))
        phases = [merge(tenants, ksm), place(tenants, "fair", "fair", ksm)]
        phases += [by_priority(tenants, pair, ksm) for pair in paper.TABLE_III]
        observed: Observed = {
            "nodes": len(nodes),
            "phases": phases,
            "bad_pages": verify(tenants),
        }
    (OUTPUT / "observed.json").write_text(json.dumps(observed, indent=1) + "\n")


if __name__ == "__main__":
    main()
