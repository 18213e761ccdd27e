# SPDX-License-Identifier: GPL-2.0-only
"""The demonstration's table."""

from nuksmlab.demo import claims, paper
from nuksmlab.demo.records import Summary, SummaryPhase

ROW = "{:<16}  {:<6}  {:>4}  {:>4}  {:>8}  {:>8}  {:>8}  {:>9}"
HEAD = (
    ("", "", "", "", "measured", "measured", "policy", "published"),
    ("phase", "tenant", "node", "nice", "local %", "remote %", "local %", "local %"),
)


def cells(values: list[float] | None, count: int) -> list[str]:
    return [f"{value:.1f}" for value in values] if values else ["-"] * count


def rows(phase: SummaryPhase) -> list[str]:
    tenants = phase["tenants"]
    measured = claims.local_percent(phase)
    targets = cells(claims.target_percent(phase), len(tenants))
    published = cells(claims.published_percent(phase), len(tenants))
    return [
        ROW.format(
            phase["name"] if number == 0 else "",
            tenant["name"],
            tenant["node"],
            tenant["nice"],
            f"{measured[number]:.1f}",
            f"{100 - measured[number]:.1f}",
            targets[number],
            published[number],
        )
        for number, tenant in enumerate(tenants)
    ]


def render(summary: Summary) -> str:
    lines = [ROW.format(*head).rstrip() for head in HEAD]
    lines.append("-" * len(ROW.format(*HEAD[0])))
    for phase in summary["phases"]:
        lines += rows(phase)
    lines += [
        "",
        f"placed by: {summary['placed_by']}",
        f"measured:  Linux {summary['kernel']} with {summary['nodes']} nodes; "
        f"{summary['pages_sharing']} mappings share {summary['pages_shared']} pages",
        "policy:    equal shares, or shares in proportion to 1 / (nice + 21)",
        f"published: {paper.SOURCE} (two virtual machines)",
    ]
    return "\n".join(lines) + "\n"
