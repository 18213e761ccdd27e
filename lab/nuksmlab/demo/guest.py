# SPDX-License-Identifier: GPL-2.0-only
"""The demonstration's phases, run inside the machine.

On a kernel with the engine, each phase starts its tenants anew and lets the
kernel place their pages as it merges them. On others `nuksm place` corrects,
phase by phase, what the kernel merged at the beginning.

Writes all it sees to $NUKSM_OUTPUT/observed.json, and each raw pass beside it.
"""

import collections
import contextlib
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path

from nuksmlab import numa, paths, program
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
            "merged_pages": by_pid[tenant.pid]["merged_mappings"],
            "local_pages": by_pid[tenant.pid]["local_mappings"],
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
        passes.append(program.place_once(policy, binary=paths.NUKSM_DEMO))
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
    status = program.status(paths.NUKSM_DEMO)
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


def start(stack: contextlib.ExitStack, nodes: Sequence[int]) -> list[Tenant]:
    tenants = []
    for spec in specs(nodes):
        say(f"starting tenant {spec.name} on node {spec.node}, {spec.mib} MiB")
        tenants.append(stack.enter_context(Tenant(spec)))
    return tenants


def placed_by_program(nodes: Sequence[int], ksm: Ksm) -> Observed:
    with contextlib.ExitStack() as stack:
        tenants = start(stack, nodes)
        phases = [merge(tenants, ksm), place(tenants, "fair", "fair", ksm)]
        phases += [by_priority(tenants, pair, ksm) for pair in paper.TABLE_III]
        bad = verify(tenants)
    return {
        "placed_by": "nuksm place",
        "nodes": len(nodes),
        "phases": phases,
        "bad_pages": bad,
    }


def placed_by_kernel(nodes: Sequence[int], ksm: Ksm) -> Observed:
    phases = []
    bad: collections.Counter[str] = collections.Counter()
    for name, placement, nice in (
        ("ksm", "first", (0, 0)),
        ("fair", "fair", (0, 0)),
        *((f"priority {pair.name}", "priority", pair.nice) for pair in paper.TABLE_III),
    ):
        say(f"{name}: the kernel merges with placement={placement}")
        ksm.unmerge()
        ksm.write_text("placement", placement)
        with contextlib.ExitStack() as stack:
            tenants = start(stack, nodes)
            for tenant, value in zip(tenants, itertools.cycle(nice), strict=False):
                tenant.renice(value)
            ksm.merge(sum(tenant.equal_pages for tenant in tenants))
            counters = ksm.counters()
            phases.append(phase(tenants, name, [], counters, counters))
            bad.update(verify(tenants))
    return {
        "placed_by": "the kernel",
        "nodes": len(nodes),
        "phases": phases,
        "bad_pages": dict(bad),
    }


def main() -> None:
    nodes = numa.online()
    ksm = Ksm()
    say(f"up: Linux {os.uname().release}, {len(nodes)} nodes")
    observe = placed_by_kernel if ksm.has_engine() else placed_by_program
    observed = observe(nodes, ksm)
    (OUTPUT / "observed.json").write_text(json.dumps(observed, indent=1) + "\n")


if __name__ == "__main__":
    main()
