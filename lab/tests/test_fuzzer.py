# SPDX-License-Identifier: GPL-2.0-only
"""The fuzzer itself, on this host."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from nuksmlab import paths, wait
from nuksmlab.fuzz.fuzzer import PROFILES, Fuzzer, Spec
from nuksmlab.tenant import TenantError


def plan(*lines: str) -> Sequence[str]:
    done = subprocess.run(
        [paths.FUZZER, "f", "mixed", "256", "-", "-"],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[1:]


def test_the_same_seed_gives_the_same_actions() -> None:
    assert plan("plan 7 500") == plan("plan 7 500")
    assert plan("plan 7 500") != plan("plan 8 500")


def test_what_was_done_before_changes_no_plan() -> None:
    fresh, *_ = plan("plan 7 500")
    assert plan("go 1", "pause", "verify", "plan 7 500")[-1] == fresh


@pytest.mark.parametrize("profile", PROFILES)
def test_it_knows_what_its_pages_hold(profile: str) -> None:
    with Fuzzer(Spec("f", profile, 512)) as fuzzer:
        for seed in range(4):
            fuzzer.go(seed)
            answer = fuzzer.command("pause")
            fuzzer.judge(answer)
            answer = fuzzer.command("verify")
            assert answer["pages"] == 512
            fuzzer.judge(answer)


def test_it_notices_a_page_that_another_changed() -> None:
    with Fuzzer(Spec("f", "wild", 512)) as fuzzer:
        with Path(f"/proc/{fuzzer.pid}/mem").open("r+b", buffering=0) as memory:
            memory.seek(fuzzer.base + 17 * 4096 + 5)
            memory.write(b"x")
        answer = fuzzer.command("verify")
        assert answer["bad"] == 1
        with pytest.raises(TenantError, match="bad"):
            fuzzer.judge(answer)


def test_it_ends_when_nobody_commands_it_any_more() -> None:
    fuzzer = Fuzzer(Spec("f", "wild", 512))
    fuzzer.go(3)
    fuzzer.process.communicate()
    assert fuzzer.process.returncode == 0


def test_it_forks() -> None:
    """Its children end before it answers that it pauses."""
    with Fuzzer(Spec("f", "wild", 512)) as fuzzer:
        fuzzer.go(1)
        children = Path(f"/proc/{fuzzer.pid}/task/{fuzzer.pid}/children")
        wait.until(
            lambda: bool(re.search(r"\d", children.read_text())),
            lambda: "a child",
            poll=0.001,
        )
        fuzzer.judge(fuzzer.command("pause"))
        assert children.read_text() == ""
