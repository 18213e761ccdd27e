# SPDX-License-Identifier: GPL-2.0-only
"""What the shell's scripts have in common: locks, places, and how they end."""

import fcntl
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from scratch import WAITS, environment, put

from nuksmlab import paths, wait


def waits_for(lock: Path) -> bool:
    """Whether anybody does, by what the kernel says of all locks."""
    inode = f":{lock.stat().st_ino} "
    return any(
        "->" in line and inode in line
        for line in Path("/proc/locks").read_text().splitlines()
    )


def ends(tree: Path, command: Sequence[str | Path]) -> None:
    """SIGTERM to it alone, while what it has started goes on, and then ends."""
    script = subprocess.Popen(command, env=environment(tree))
    pid = tree / "pid"
    wait.until(pid.exists, lambda: f"what {command[0]} starts")
    script.terminate()
    pid.unlink()
    (tree / "end").touch()
    assert script.wait() == 128 + signal.SIGTERM
    (tree / "end").unlink()


def test_a_script_that_is_ended_does_so_after_what_it_has_started(tree: Path) -> None:
    """So nothing that goes on works on what was removed."""
    for name in ("kernel/check.sh", "kernel/moved.sh", "kernel/series.sh"):
        put(tree / "kernel" / "build.sh", WAITS.format(place=tree, before=""))
        script = shutil.copy(paths.REPOSITORY / name, tree / name)
        ends(tree, [script, "6.12", *(["6.12"] if "moved" in name else [])])
    name = "packaging/deb.sh"
    put(tree / "bin" / "dpkg-buildpackage", WAITS.format(place=tree, before=""))
    shutil.copytree(paths.REPOSITORY / "packaging", tree / "packaging")
    shutil.copy(paths.REPOSITORY / "Cargo.toml", tree)
    ends(tree, [tree / name])


@pytest.mark.parametrize(
    ("name", "arguments", "lock"),
    [
        ("kernel/build.sh", "lab", "cache/source/linux-6.12-1.lock"),
        ("kernel/build.sh", "lab", "cache/work/6.12-lab/lock"),
        ("kernel/apt.sh", "6.12 update", "cache/apt.lock"),
        ("scripts/setup.sh", "test", "build/.setup.lock"),
    ],
)
def test_who_waits_for_a_lock_ends_when_told(
    tree: Path, name: str, arguments: str, lock: str
) -> None:
    text = (paths.REPOSITORY / name).read_text()
    script = put(tree / name, text)
    path = put(tree / lock, "")
    known = environment(tree, NUKSM_CACHE=str(tree / "cache"))
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = subprocess.Popen([script, *arguments.split()], env=known)
        wait.until(lambda: waits_for(path), lambda: "who waits")
        waiting.terminate()
        assert waiting.wait(wait.HANG_SECONDS) in (
            -signal.SIGTERM,
            128 + signal.SIGTERM,
        )
        wait.until(lambda: not waits_for(path), lambda: "the end of who waited")


in_each_script = pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *(("kernel/build.sh", "lab"), ("kernel/apt.sh", "6.12 update")),
        ("scripts/setup.sh", "test"),
    ],
)


@in_each_script
def test_a_lock_that_cannot_be_had_is_not_waited_for(
    tree: Path, name: str, arguments: str
) -> None:
    """As on some file systems."""
    script = put(tree / name, (paths.REPOSITORY / name).read_text())
    put(tree / "bin" / "flock", "#!/bin/sh\nexit 66\n")
    known = environment(tree, NUKSM_CACHE=str(tree / "cache"))
    ended = subprocess.run(
        [script, *arguments.split()], env=known, timeout=wait.HANG_SECONDS, check=False
    )
    assert ended.returncode == 66


@in_each_script
def test_who_has_no_home_is_told_what_to_set(
    tree: Path, name: str, arguments: str
) -> None:
    script = put(tree / name, (paths.REPOSITORY / name).read_text())
    known = environment(tree)
    for variable in ("HOME", "XDG_CACHE_HOME", "NUKSM_CACHE"):
        known.pop(variable, None)
    ended = subprocess.run(
        [script, *arguments.split()], env=known, stderr=subprocess.PIPE, check=False
    )
    assert ended.returncode and b"set it, or NUKSM_CACHE" in ended.stderr


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *(("kernel/apt.sh", ["6.12", "show"]), ("kernel/build.sh", ["lab"])),
        *(("kernel/check.sh", []), ("kernel/moved.sh", ["6.12", "7.3"])),
        *(("kernel/series.sh", []), ("packaging/deb.sh", []), (".ci/run", [])),
        *(("packaging/install.sh", []), ("scripts/setup.sh", ["test"])),
    ],
)
def test_a_script_finds_its_own_place_whatever_shells_look_for_others_in(
    tmp_path: Path, name: str, arguments: list[str]
) -> None:
    lines = (paths.REPOSITORY / name).read_text().splitlines()
    (goes,) = (number for number, line in enumerate(lines) if 'cd "$(dirname' in line)
    shows = 'echo "${kernel-${repository-$PWD}}"'
    put(tmp_path / name, "\n".join([*lines[: goes + 1], shows, ""]))
    said = subprocess.run(
        [name, *arguments],
        cwd=tmp_path,
        env=environment(tmp_path, CDPATH="."),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    own = tmp_path / "kernel" if name.startswith("kernel") else tmp_path
    assert said.stdout == f"{own}\n"
