# SPDX-License-Identifier: GPL-2.0-only
"""The makefiles: what ends with make, and that what is in the environment does not
change what is built."""

import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from scratch import environment, put

from nuksmlab import paths, wait


def test_the_names_of_hosts_are_no_settings(tmp_path: Path) -> None:
    shutil.copy(paths.REPOSITORY / "Makefile", tmp_path)
    known = environment(tmp_path, HOST="big", NAME="small", CDPATH=".")

    def shown(*arguments: str) -> str:
        command = ["make", "-n", "paper", "mutants", "READY=", *arguments]
        said = subprocess.run(
            command, cwd=tmp_path, env=known, capture_output=True, check=True
        )
        return said.stdout.decode()

    assert "--host" not in shown() and "small" not in shown()
    assert "--host" in shown("HOST=1") and "cold-payers" in shown("NAME=cold-payers")


def test_cargo_builds_where_the_program_is_looked_for(tmp_path: Path) -> None:
    shutil.copy(paths.REPOSITORY / "Makefile", tmp_path)
    said = 'echo "$CARGO_TARGET_DIR ${CARGO_BUILD_TARGET-none} ${CDPATH-none}" >said'
    put(tmp_path / "bin" / "cargo", f"#!/bin/sh\n{said}\n")
    others = {
        "CARGO_TARGET_DIR": "/elsewhere",
        "CARGO_BUILD_TARGET": "any",
        "CDPATH": ".",
    }
    known = environment(tmp_path, **others)
    subprocess.run(["make", "program"], cwd=tmp_path, env=known, check=True)
    assert (tmp_path / "said").read_text() == f"{tmp_path}/target none none\n"


# What targets need that is done before.
NEEDED = (
    *("setup", "setup-demo", "setup-deb", "setup-kernel", "setup-kernel-deb"),
    *("build", "build-lab", "program"),
)


@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize(
    "target",
    [
        *("test", "test-all", "demo", "build", "build-tenant", "program", "deb"),
        *("engine-um", "engine-2", "engine-looks", "engine-program", "engine-4"),
        *("engine-tiers", "engine-debug", "guest-2", "guest-4", "vms", "counter"),
        *("paper", "stress", "bench", "mutants", "cost", "selftests-some", "package"),
        *("kernel", "kernel-deb", "setup", "setup-kernel", "setup-kernel-deb"),
    ],
)
def test_what_a_target_has_started_ends_with_its_make(
    tmp_path: Path, target: str, *, killed: bool
) -> None:
    """Though that is killed, which tells nobody."""
    shutil.copy(paths.REPOSITORY / "Makefile", tmp_path)
    pid = tmp_path / "pid"
    notes = f"echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 1000"
    for program in (
        *("build/venv/bin/python", "kernel/build.sh", "scripts/setup.sh"),
        *("packaging/deb.sh", "bin/cargo"),
    ):
        put(tmp_path / program, f"#!/bin/sh\n{notes}\n")
    put(tmp_path / "lab" / "tenant" / "Makefile", f"all:\n\t{notes}\n")
    done = [option for name in NEEDED if name != target for option in ("-o", name)]
    settings = ["READY=", "HARDWARE=any", "KERNEL=any", "CONFIG_FILE=any"]
    with subprocess.Popen(
        ["make", target, *settings, *done], cwd=tmp_path, env=environment(tmp_path)
    ) as make:
        wait.until(pid.exists, lambda: "what it starts")
        if killed:
            make.kill()
        else:
            make.terminate()
    one = Path(f"/proc/{pid.read_text().strip()}/exe")
    if killed:
        wait.until(lambda: not one.exists(), lambda: "its end")
    assert not one.exists()


@pytest.mark.parametrize("part", ["tenant", "fuzz", "plugin", "workloads"])
def test_a_program_that_was_half_written_is_made_again(
    tmp_path: Path, part: str
) -> None:
    lab, out = tmp_path / "lab", tmp_path / "out"
    for name in ("tenant", "fuzz", "plugin", "workloads"):
        shutil.copytree(paths.REPOSITORY / "lab" / name, lab / name)
    last = 'while [ "$1" != -o ]; do shift; done; echo half >"$2"'
    killed = put(tmp_path / "cc", f"#!/bin/sh\n{last}; kill -9 $PPID\n")
    whole = put(tmp_path / "cc2", f'#!/bin/sh\n{last}; echo whole >>"$2"\n')
    make = ["make", "-C", str(lab / part), f"OUT={out}"]
    done = subprocess.run([*make, f"CC={killed}"], check=False)
    assert done.returncode == -signal.SIGKILL
    subprocess.run([*make, f"CC={whole}"], check=True)
    for program in out.iterdir():
        assert program.read_text() == "half\nwhole\n"
