# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own tests of KSM: every setting of the engine gives the same results.

They run on a stock kernel, too, where the engine's settings are left out. What
the tests said goes to selftests.json, for `python -m nuksmlab.selftests compare`.
"""

import ctypes
import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nuksmlab import selftests
from nuksmlab.ksm import FAST, Ksm
from nuksmlab.selftests import KSFT_SKIP, OURS, RMAP, Outcome, Outcomes

pytestmark = pytest.mark.needs(nodes=2)

# As the kernel's run_vmtests.sh has them, and two more that it leaves out; those
# that measure time (-P, -H, -D, -C) are here for their verdict, on little memory.
# The limit, in seconds, is for machines that are busy; usually each takes one.
LIMIT = "-l 600"
KSM_TESTS = [
    "-M -p 10",
    "-U",
    "-Z -p 10 -z 0",
    "-Z -p 10 -z 1",
    "-P -s 2 -p 1000",
    "-H -s 2 -p 1000",
    "-D -s 2 -p 1000",
    "-C -p 1000",
]
NUMA_TESTS = ["-N -m 1", "-N -m 0"]

STOCK = {"index": "content", "kib_per_tree": "0", "placement": "first"}
SETTINGS = [
    {"index": index, "kib_per_tree": "16", "placement": placement}
    for index, placement in itertools.product(
        ("content", "checksum"), ("first", "fair", "priority")
    )
]
# Copies of whatever is used on two nodes, and somebody who looks for that all the time.
SETTINGS.append(
    {"index": "checksum", "kib_per_tree": "16", "placement": "fair"}
    | {"look_cpu_permille": "1000", "replica_percent": "100"}
)
# With stock's settings, which come first, each value of each knob at least once.
CHECKED_ALWAYS = (
    {"index": "checksum", "kib_per_tree": "16", "placement": "fair"},
    {"index": "checksum", "kib_per_tree": "16", "placement": "priority"},
)
# smart_scan makes ksm_tests -N fail by chance, on any kernel: it waits for two
# scans, in which a page that was there before may be skipped.
KEPT = ("merge_across_nodes", "smart_scan", *STOCK)

MPOL_BIND, MPOL_INTERLEAVE = 2, 3


@pytest.fixture(scope="module")
def outcomes() -> Outcomes:
    """What the tests said so far, in each setting."""
    if not (selftests.DIRECTORY / OURS[-1]).exists():
        pytest.fail("on the host: build/venv/bin/python -m nuksmlab.selftests build")
    return {}


def chosen(text: str) -> str:
    """The value of a file that may show others beside it: `content [checksum]`."""
    return text.partition("[")[2].partition("]")[0] or text


@pytest.fixture(autouse=True)
def kept_settings(ksm: Ksm) -> Iterator[None]:
    present = [name for name in KEPT if (ksm.root / name).exists()]
    before = {name: chosen(ksm.read_text(name)) for name in present}
    yield
    ksm.unmerge()
    for name, value in before.items():
        ksm.write_text(name, value)


@contextmanager
def new_memory(mode: int, nodes: int) -> Iterator[None]:
    """Where this process's children get their memory; `nodes` is a mask."""
    set_mempolicy = ctypes.CDLL("libnuma.so.1", use_errno=True).set_mempolicy
    if set_mempolicy(mode, ctypes.byref(ctypes.c_ulong(nodes)), 64) != 0:
        raise OSError(ctypes.get_errno(), "set_mempolicy")
    yield
    set_mempolicy(0, None, 0)


def run(name: str, *arguments: str, user: int | None = None) -> Outcome:
    # ksm_functional_tests starts itself from the current directory; rmap wants to
    # migrate a file that it makes there, which those of the host's cannot be.
    done = subprocess.run(
        [f"./{name}" if name != RMAP else selftests.DIRECTORY / name, *arguments],
        cwd=selftests.DIRECTORY if name != RMAP else "/dev/shm",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        user=user,
        check=False,
    )
    outcome = selftests.parse(done.returncode, done.stdout)
    if not outcome.passed():
        print(done.stdout)
    return outcome


def run_set(ksm: Ksm, values: dict[str, str], name: str, arguments: str) -> Outcome:
    """One test after setting everything anew: some tests leave settings behind."""
    ksm.unmerge()
    ksm.set_speed(FAST)
    ksm.write("smart_scan", 0)
    for knob, value in values.items():
        ksm.write_text(knob, value)
    return run(name, *arguments.split())


def run_all(ksm: Ksm, across: int, engine: dict[str, str]) -> dict[str, Outcome]:
    """All tests of KSM, with something to place wherever that may happen.

    When pages merge across nodes they come from all nodes in turn. When they do
    not, counting on all equal pages to merge asks for them to be on one node.
    """
    values = {"merge_across_nodes": str(across), **engine}
    ksm_tests = "ksm_tests" if across else "ksm_tests_as_set"
    policy = (MPOL_INTERLEAVE, 0b11) if across else (MPOL_BIND, 0b01)
    said = {}
    with new_memory(*policy):
        for arguments in KSM_TESTS:
            said[arguments] = run_set(ksm, values, ksm_tests, f"{arguments} {LIMIT}")
        for arguments in NUMA_TESTS:
            said[arguments] = run_set(ksm, values, "ksm_tests", f"{arguments} {LIMIT}")
        said["functional"] = run_set(ksm, values, "ksm_functional_tests", "")
        if (selftests.DIRECTORY / RMAP).exists():
            said[RMAP] = run_set(ksm, values, RMAP, "")
    return said


def collect(
    ksm: Ksm, outcomes: Outcomes, across: int, engine: dict[str, str]
) -> dict[str, Outcome]:
    """What the tests say in this setting; they run once, and it is written down."""
    setting = {"merge_across_nodes": str(across)}
    if ksm.has_engine():
        setting |= engine
    name = selftests.setting_name(setting)
    if name not in outcomes:
        outcomes[name] = run_all(ksm, across, engine if ksm.has_engine() else {})
        output = Path(os.environ["NUKSM_OUTPUT"])
        selftests.write(output / selftests.RESULTS, outcomes)
    return outcomes[name]


def decisions(ksm: Ksm) -> int:
    reasons = ("hot", "spread", "priority", "no_room")
    return sum(ksm.read(f"placed_{reason}") for reason in reasons)


@pytest.mark.parametrize("across", [1, pytest.param(0, marks=pytest.mark.exhaustive)])
def test_all_pass_as_in_stock(ksm: Ksm, outcomes: Outcomes, across: int) -> None:
    said = collect(ksm, outcomes, across, STOCK)
    assert not {test: each for test, each in said.items() if not each.passed()}


def combinations() -> Iterator[object]:
    """All of them; those that are not CHECKED_ALWAYS take a run of their own."""
    for engine, across in itertools.product(SETTINGS, (1, 0)):
        yield pytest.param(
            engine,
            across,
            id=f"{selftests.setting_name(engine)}-{across}",
            marks=() if across and engine in CHECKED_ALWAYS else pytest.mark.exhaustive,
        )


@pytest.mark.parametrize(("engine", "across"), list(combinations()))
def test_every_setting_gives_the_same_results(
    ksm: Ksm, outcomes: Outcomes, engine: dict[str, str], across: int
) -> None:
    if not ksm.has_engine():
        pytest.skip("a stock kernel")
    expected = collect(ksm, outcomes, across, STOCK)
    before = decisions(ksm)
    assert collect(ksm, outcomes, across, engine) == expected
    # By priority only processes that share pages have anything to decide: the
    # tests fork once, and whether a page meets its like then is a matter of time.
    if engine["placement"] != "priority":
        assert (decisions(ksm) > before) == (engine["placement"] == "fair")


@pytest.mark.usefixtures("outcomes")
@pytest.mark.parametrize("name", OURS)
def test_the_engine_passes_its_own(ksm: Ksm, name: str) -> None:
    outcome = run(name)
    if ksm.has_engine():
        assert outcome.passed(), outcome
    else:
        assert outcome.status == KSFT_SKIP


@pytest.mark.usefixtures("outcomes")
@pytest.mark.parametrize("name", OURS)
def test_the_engine_s_own_need_root(name: str) -> None:
    assert run(name, user=65534).status == KSFT_SKIP
