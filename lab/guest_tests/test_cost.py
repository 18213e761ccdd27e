# SPDX-License-Identifier: GPL-2.0-only
"""What a pass over 1 GiB of merged pages costs."""

import json
from pathlib import Path

import pytest

from nuksmlab import paths, program
from nuksmlab.ksm import Ksm
from nuksmlab.tenant import StartTenant

MERGED_MIB = 1024


def place() -> program.Pass:
    return program.place_once("fair", binary=paths.NUKSM_RELEASE)


@pytest.mark.cost
@pytest.mark.needs(nodes=2)
def test_pass_over_one_gib(start: StartTenant, ksm: Ksm, output: Path) -> None:
    """The times are reported, not asserted: they are those of this host."""
    tenants = [start(f"vm-{node}", node, mib=MERGED_MIB) for node in (0, 1)]
    ksm.merge(sum(tenant.equal_pages for tenant in tenants))
    first = place()
    ksm.settle()
    left_over = place()
    assert left_over["moved"] == first["refused"]
    ksm.settle()
    idle = place()
    record = {"moving": first, "left_over": left_over, "moving_nothing": idle}
    (output / "cost.json").write_text(json.dumps(record, indent=1) + "\n")
    assert idle["merged_pages"] == MERGED_MIB * 256
    assert idle["moved"] == 0
    for report in (first, left_over, idle):
        assert report["peak_memory_bytes"] / report["merged_pages"] < 200
