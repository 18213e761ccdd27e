# SPDX-License-Identifier: GPL-2.0-only
"""All experiments, in the order of the report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nuksmlab.paper.extent import Extent, Part
from nuksmlab.paper.fairness import plan as fairness_plan
from nuksmlab.paper.fairness import section as fairness_section
from nuksmlab.paper.guests import plan as guests_plan
from nuksmlab.paper.guests import section as guests_section
from nuksmlab.paper.model import Hardware
from nuksmlab.paper.nodes import plan as nodes_plan
from nuksmlab.paper.nodes import section as nodes_section
from nuksmlab.paper.priority import plan as priority_plan
from nuksmlab.paper.priority import section as priority_section
from nuksmlab.paper.section import Section
from nuksmlab.paper.trial import Result


@dataclass(frozen=True)
class Experiment:
    name: str
    parts: Callable[[Extent], list[Part]]
    section: Callable[[Sequence[Result], Hardware], Section]


ALL = (
    Experiment("fairness", fairness_plan.parts, fairness_section.section),
    Experiment("priority", priority_plan.parts, priority_section.section),
    Experiment("guests", guests_plan.parts, guests_section.section),
    Experiment("nodes", nodes_plan.parts, nodes_section.section),
)
