# SPDX-License-Identifier: GPL-2.0-only
"""The report's four scenarios, in two boots."""

from nuksmlab.paper.consolidation.records import Plan, Scenario
from nuksmlab.paper.extent import QUICK, Extent

OURS, STOCK = "ours", "stock"
ONE: Scenario = {"name": "one", "kernels": [OURS]}
TWO: Scenario = {"name": "two alike", "kernels": [OURS] * 2}
THREE: Scenario = {"name": "three alike", "kernels": [OURS] * 3}
DIFFERENT: Scenario = {"name": "two different", "kernels": [OURS, STOCK]}
# The report's are 100 pages each 200 ms, for an hour and a half.
SPEED = {"pages_to_scan": 1000, "sleep_millisecs": 200}
NODE_MIB = 1024


def plan(scenarios: list[Scenario], scans: int, without_seconds: float) -> Plan:
    return {
        "scenarios": scenarios,
        "node_mib": NODE_MIB,
        "guest_mib": 256,
        "load_mib": 8,
        "without_seconds": without_seconds,
        "scans": scans,
        "interval_seconds": 1,
        "speed": SPEED,
    }


def plans(extent: Extent) -> dict[str, Plan]:
    """By the name of the folder of the boot."""
    if extent is QUICK:
        return {"consolidation-alike": plan([ONE, TWO], 3, 8.0)}
    return {
        "consolidation-alike": plan([ONE, TWO, THREE], 6, 30.0),
        "consolidation-different": plan([DIFFERENT], 6, 30.0),
    }
