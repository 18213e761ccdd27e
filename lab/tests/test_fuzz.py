# SPDX-License-Identifier: GPL-2.0-only
"""Rounds, the journal and the model, without a machine."""

import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

from nuksmlab import accelerator, kernels, machine
from nuksmlab.fuzz import __main__ as fuzz
from nuksmlab.fuzz import journal, model
from nuksmlab.fuzz.round import seeds

NOTED = "\n".join(
    json.dumps(facts)
    for facts in (
        {"seed": 1},
        {"seed": 1, "seconds": 60, "actions": 900},
        {"seed": 2},
    )
)


def test_the_first_seed_is_the_one_given_and_decides_the_others() -> None:
    first = list(itertools.islice(seeds(7), 5))
    assert first[0] == 7
    assert first == list(itertools.islice(seeds(7), 5))
    assert len(set(first)) == 5


@pytest.mark.parametrize("unended", [journal.FAILED, journal.INTERRUPTED])
def test_a_round_without_an_end_is_told(tmp_path: Path, unended: str) -> None:
    entries = journal.rounds(NOTED, "nuksm-debug", "nuksm-debug-1", 4, unended)
    assert [(entry.seed, entry.result) for entry in entries] == [
        (1, journal.PASSED),
        (2, unended),
    ]
    file = tmp_path / "fuzz" / "journal.jsonl"
    journal.add(file, entries)
    assert journal.read(file) == entries


def test_the_journal_grows_and_sums_up(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    assert journal.read(file) == []
    for unended in (journal.FAILED, journal.INTERRUPTED):
        journal.add(file, journal.rounds(NOTED, "k", "k-1", 4, unended))
    assert journal.table(journal.read(file)) == (
        "  k-1, 4 nodes: 4 rounds, 0.03 h, 1800 actions, 1 failed"
    )


def test_a_line_that_was_cut_off_is_lost_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    entries = journal.rounds(f'{NOTED}\n{{"seed"', "k", "k-1", 4, journal.FAILED)
    assert [entry.seed for entry in entries] == [1, 2]
    file.write_text('{"kernel": "nuksm", "bui')
    assert journal.read(file) == []
    journal.add(file, entries)
    assert journal.read(file) == entries


def test_a_machine_that_ends_before_its_first_round_is_repeated_by_its_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fuzz, "JOURNAL", tmp_path / "journal.jsonl")
    monkeypatch.setattr(kernels, "find", lambda _: tmp_path / "kernel")
    monkeypatch.setattr(accelerator, "kvm_works", lambda _: False)
    ends = mock.Mock(side_effect=machine.MachineError("it ended"))
    monkeypatch.setattr(machine, "boot", ends)
    campaign = fuzz.Campaign("nuksm", 2)
    campaign.output = tmp_path
    assert not fuzz.go_on(campaign, 60, 7)
    assert "make stress KERNEL=nuksm NODES=2 SEED=7\n" in capsys.readouterr().out


ENDED = """
import os, signal, sys
from pathlib import Path
from nuksmlab.fuzz import __main__ as fuzz
fuzz.JOURNAL = Path(sys.argv.pop())
fuzz.Campaign = lambda *_: os.kill(os.getpid(), signal.SIGINT)
sys.exit(fuzz.main())
"""


def test_ended_by_a_key_it_has_not_passed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENDED, str(tmp_path / "journal.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 128 + signal.SIGINT
    assert str(tmp_path / "journal.jsonl") in done.stdout
    assert done.stderr == ""


DIFFERS = "pages_shared 0 counted=2 walked=3"
OFF = f"{DIFFERS}\naudit: 1 differences\n"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("audit: ok\n", []),
        (OFF, [DIFFERS]),
        (OFF.replace("1", "2"), [DIFFERS, "audit: 2 differences"]),
        ("audit: 1 differences\n", ["audit: 1 differences"]),
        (OFF.replace("1 differences", "ok"), [DIFFERS, "audit: ok"]),
        ("", [""]),
    ],
)
def test_an_audit_is_believed_only_if_it_agrees_with_itself(
    text: str, wrong: list[str]
) -> None:
    assert model.parse_audit(text) == wrong


def test_own_pages_are_mapped_once() -> None:
    """Whoever is not root is shown no frames: then all are the same one."""
    frames = model.mappings(os.getpid())
    assert len(frames) > 100
    if os.geteuid() == 0:
        assert len(set(frames)) > len(frames) // 2


RACE = "BUG: KCSAN: data-race in {}"


@pytest.mark.parametrize(
    ("functions", "fault"),
    [
        ("cmp_and_merge_page / pages_shared_show", True),
        ("do_anonymous_page / stable_tree_append", True),
        ("nuksm_heat+0x10/0x20", True),
        ("nuksm_show_process / stable_tree_append", True),
        ("proc_pid_ksm_stat / stable_tree_append", False),
        ("nuksm_visit / proc_pid_ksm_stat", True),
        ("__mod_lruvec_state / shrink_folio_list", False),
        ("task_tick_fair / update_curr", False),
    ],
)
def test_of_data_races_only_those_of_ksm_count(functions: str, fault: bool) -> None:
    line = RACE.format(functions)
    assert machine.faults(f"before\n{line}\nafter\n") == ([line] if fault else [])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is shown frames")
def test_mappings_that_nobody_told_of_are_noticed() -> None:
    waits = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    waits.start()
    try:
        wrong = model.wrongly_mapped([os.getpid()])
        assert any("1 mappings, counted 2" in page for page in wrong)
        assert waits.pid is not None
        # The host may have just unmapped some, to move them, in vain
        model.check_mappings([os.getpid(), waits.pid])
    finally:
        waits.kill()
        waits.join()
