# SPDX-License-Identifier: GPL-2.0-only
"""The paper's trials as on a real server: on this machine's nodes, by its clock."""

from dataclasses import replace
from pathlib import Path

import pytest

from nuksmlab.machine import Machine
from nuksmlab.paper import extent, runner
from nuksmlab.paper.extent import CORRECTED, NUKSM, OFF, STOCK, Part
from nuksmlab.paper.trial import local_pages_percent, places
from nuksmlab.paper.where import Host

SMALL = replace(extent.HOST, kib=4096, operations={"random_access": 1000})
LOCAL = {OFF: [100, 100], STOCK: [100, 0], NUKSM: [50, 50], CORRECTED: [50, 50]}


@pytest.mark.needs(nodes=2)
@pytest.mark.usefixtures("ksm")
def test_trials_run_on_this_machine_itself(tmp_path: Path) -> None:
    trials = [
        extent.trial(SMALL, "random_access", configuration, places([0, 1]))
        for configuration in LOCAL
    ]
    runner.run(Part("any", Machine(2, 0), SMALL.caches, trials), Host(), tmp_path)
    results = list(runner.read(tmp_path))
    for result, local in zip(results, LOCAL.values(), strict=True):
        instances = result["instances"]
        assert [local_pages_percent(one) for one in instances] == pytest.approx(
            local, abs=1
        )
        assert {one["answer"]["checksum"] for one in instances} == {result["expected"]}
        assert all(one["answer"]["seconds"] > 0 for one in instances)
