# SPDX-License-Identifier: GPL-2.0-only
"""What a tenant learns of another one by guessing, and by timing its writes.

Of cost, as it is about time; and by chance, one run in a thousand finds a difference
where there is none.
"""

import json
import os
import random
import statistics
from contextlib import ExitStack
from pathlib import Path

import pytest

from nuksmlab import attacker, domains, stress
from nuksmlab.domains import group
from nuksmlab.ksm import Ksm
from nuksmlab.ranks import rank_sum

GUESSES = 512  # pages that the victim has; as many that it does not have
SCANS = 4
RUNS = 5
SURE, UNSURE = 1e-6, 1e-3
INSIDE, ACROSS, ALONE = "one domain", "two domains", "no victim"

pytestmark = [
    pytest.mark.cost,
    pytest.mark.skipif(not domains.exist(), reason="this kernel has no domains"),
]


def attack(ksm: Ksm, config: str, run: int) -> attacker.Found:
    """All configurations of a run see the same pages."""
    ksm.unmerge()
    with ExitStack() as stack:
        cgroups = [stack.enter_context(group(name)) for name in ("victim", "attacker")]
        cgroups[0].give(1)
        cgroups[1].give(1 if config == INSIDE else 2)
        secrets = attacker.contents(random.Random(f"secret {run}"), GUESSES)
        others = attacker.contents(random.Random(f"other {run}"), GUESSES)
        if config != ALONE:
            stack.enter_context(attacker.victim(cgroups[0], secrets))
        look = stack.enter_context(
            attacker.attacking(cgroups[1], secrets, others, random.Random(run))
        )
        for _ in range(SCANS):
            ksm.scan_once()
        ksm.stop()
        return look()


def test_writes_tell_what_others_have_inside_a_domain_and_nothing_across(
    ksm: Ksm,
) -> None:
    stress.account_memory()
    configs = (INSIDE, ACROSS, ALONE)
    told: dict[str, list[dict[str, int]]] = {config: [] for config in configs}
    rows = []
    for run in range(RUNS):
        for config in configs:
            found = attack(ksm, config, run)
            right, wrong = found["right_ns"], found["wrong_ns"]
            p, effect = rank_sum(right, wrong)
            told[config].append(found["told"])
            rows.append(
                {
                    "config": config,
                    "run": run,
                    "p": p,
                    "effect": effect,
                    "right_us": statistics.median(right) / 1000,
                    "wrong_us": statistics.median(wrong) / 1000,
                    "raw": found,
                }
            )
            print(
                *(
                    f"{v:.3g}" if isinstance(v, float) else v
                    for v in list(rows[-1].values())[:-1]
                )
            )
    Path(os.environ["NUKSM_OUTPUT"], "leak.json").write_text(json.dumps(rows))
    p_of = {c: [row["p"] for row in rows if row["config"] == c] for c in configs}
    assert max(p_of[INSIDE]) < SURE
    assert min(p_of[ACROSS]) > UNSURE
    assert min(p_of[ALONE]) > UNSURE
    assert told[ACROSS] == told[ALONE]
    assert told[INSIDE] != told[ALONE]
