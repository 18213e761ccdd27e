# SPDX-License-Identifier: GPL-2.0-only
"""Everything at once, round by round: no content may change, and nothing may be left.

`make stress` runs it: docs/stress.md.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from nuksmlab import numa, stress
from nuksmlab.fuzz import model, readers
from nuksmlab.fuzz.journal import ROUNDS
from nuksmlab.fuzz.round import Round, seeds

SECONDS = float(os.environ.get("NUKSM_STRESS_SECONDS", "180"))
SEED = int(os.environ.get("NUKSM_STRESS_SEED", "1"))
ROUND_SECONDS = 120.0
SWAP_MIB = 128
READ_SECONDS = 0.2
MANY_OFF = 8


def note(**facts: object) -> None:
    """For the host, which keeps the journal; it has this even if the machine dies."""
    with (Path(os.environ["NUKSM_OUTPUT"]) / ROUNDS).open("a") as file:
        file.write(f"{json.dumps(facts)}\n")


@pytest.fixture
def machine_is_ready() -> Iterator[None]:
    stress.account_memory()
    stress.stop_leak_scans()
    stress.find_races()
    with (
        readers.reading(readers.every_file, readers.ROOT, rest=READ_SECONDS),
        readers.reading(readers.every_file, readers.NOBODY, rest=READ_SECONDS),
    ):
        yield


@pytest.mark.stress
@pytest.mark.usefixtures("ksm", "machine_is_ready")
def test_stress(capsys: pytest.CaptureFixture[str]) -> None:
    swap = stress.Swap(SWAP_MIB)
    log = model.Log()
    end = time.monotonic() + SECONDS
    done: Counter[str] = Counter()
    with capsys.disabled():
        for seed in seeds(SEED):
            began = time.monotonic()
            if began > end:
                break
            note(seed=seed)
            played = Round(seed, swap, log)
            try:
                played.play(min(ROUND_SECONDS, SECONDS))
            finally:
                print(played.counts.table())
            done += played.counts.done
            took, actions = time.monotonic() - began, played.counts.done.total()
            note(seed=seed, seconds=round(took), actions=actions)
            print(f"  seed {seed}: {took:.0f} s, {actions} actions", flush=True)
    assert stress.leaks() == []
    if len(numa.online()) == 4 and done["memory off and on"] >= MANY_OFF:
        assert done["memory block off"] > 0
