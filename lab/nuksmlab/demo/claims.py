# SPDX-License-Identifier: GPL-2.0-only
"""What the demonstration promises, checked on what was observed."""

from collections.abc import Iterator

from nuksmlab import policy
from nuksmlab.demo import paper
from nuksmlab.demo.records import Observed, Phase, Summary, SummaryPhase, summarize

ONE_NODE_PERCENT = 95.0
POINTS = 1.0


def local_percent(phase: SummaryPhase) -> list[float]:
    return [
        100 * tenant["local_pages"] / max(tenant["merged_pages"], 1)
        for tenant in phase["tenants"]
    ]


def target_percent(phase: SummaryPhase) -> list[float] | None:
    """The local shares that the phase's policy aims at."""
    tenants = phase["tenants"]
    if phase["name"] == "fair":
        return [100 / len(tenants)] * len(tenants)
    if phase["name"].startswith("priority"):
        return paper.priority_percent([tenant["nice"] for tenant in tenants])
    return None


def published_percent(phase: SummaryPhase) -> list[float] | None:
    """The paper's figures, which there are for two tenants."""
    if len(phase["tenants"]) != 2:
        return None
    for row in paper.TABLE_III:
        if phase["name"] == f"priority {row.name}":
            return list(row.local_percent)
    return None


def allowed_points(pages: int, percent: float, *, by_chance: bool) -> float:
    """`nuksm place` counts pages; the kernel decides each by a number like chance's."""
    if not by_chance:
        return POINTS
    return max(POINTS, 100 * policy.allowed(percent / 100, pages))


def placement(phase: SummaryPhase, *, by_chance: bool) -> Iterator[str]:
    name = phase["name"]
    measured = local_percent(phase)
    if name == "ksm" and max(measured) < ONE_NODE_PERCENT:
        yield (
            f"ksm: at most {max(measured):.1f} % of the merged pages are on one "
            f"node, not {ONE_NODE_PERCENT:.0f} %"
        )
    for kind, wanted in (
        ("target", target_percent(phase)),
        ("published", published_percent(phase)),
    ):
        for tenant, is_, should in zip(
            phase["tenants"], measured, wanted or measured, strict=True
        ):
            pages = max(tenant["merged_pages"], 1)
            allowed = allowed_points(pages, should, by_chance=by_chance)
            if abs(is_ - should) > allowed:
                yield (
                    f"{name}: {tenant['name']} is {is_:.1f} % local, "
                    f"more than {allowed:.1f} points off the {kind} {should:.1f} %"
                )
    if phase["second_pass_moved"]:
        yield f"{name}: a second pass moved {phase['second_pass_moved']} more pages"
    if any(tenant["merged_pages"] == 0 for tenant in phase["tenants"]):
        yield f"{name}: a tenant has no merged pages"


def cross_checks(phase: Phase) -> Iterator[str]:
    """What the summary leaves out: sharing kept, and the kernel's own account."""
    for counter, (before, after) in (
        ("pages_shared", phase["pages_shared"]),
        ("pages_sharing", phase["pages_sharing"]),
    ):
        if after < before:
            yield f"{phase['name']}: {counter} fell from {before} to {after}"
    for tenant in phase["tenants"]:
        ours, kernels = tenant["local_pages"], tenant["kernel_local_pages"]
        if abs(ours - kernels) * 100 > POINTS * tenant["merged_pages"]:
            yield (
                f"{phase['name']}: nuksm says {tenant['name']} has {ours} local "
                f"pages, the kernel says {kernels}"
            )


def expected_phases() -> list[str]:
    return ["ksm", "fair", *(f"priority {row.name}" for row in paper.TABLE_III)]


def broken(observed: Observed) -> list[str]:
    """Every promise that was not kept, in words; empty when all were."""
    summary: Summary = summarize(observed)
    result = []
    if [phase["name"] for phase in summary["phases"]] != expected_phases():
        result.append("not all phases were run")
    if not summary["content_intact"]:
        result.append(f"pages with wrong content: {observed['bad_pages']}")
    for phase in summary["phases"]:
        result += placement(phase, by_chance=observed["placed_by"] == "the kernel")
    for seen in observed["phases"]:
        result += cross_checks(seen)
    return result
