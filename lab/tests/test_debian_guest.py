# SPDX-License-Identifier: GPL-2.0-only
"""The guests' file system, from made-up packages and folders."""

import shutil
import subprocess
from pathlib import Path

import pytest

from nuksmlab import debian_guest, initramfs


def test_all_that_a_package_depends_on_comes_along() -> None:
    known = {
        "shell": "libc (>= 2.36), base:any",
        "libc": "gcc | clang",
        "base": "awk, dpkg (>= 1.13)",
        "dpkg": "tar",
        "clang": "",
        "editor": "libc",
    }
    # Nobody provides awk, which is virtual.
    assert debian_guest.closure(known, ["shell"]) == ["base", "clang", "libc", "shell"]


def test_a_package_that_is_not_there_is_named() -> None:
    with pytest.raises(debian_guest.DebianError, match="shell is not installed"):
        debian_guest.closure({"libc": ""}, ["shell"])


def test_archive_unpacks_to_the_same_files(tmp_path: Path) -> None:
    folder = tmp_path / "from"
    (folder / "usr").mkdir(parents=True)
    program = folder / "usr" / "program"
    program.write_bytes(b"hello")
    program.chmod(0o755)
    (folder / "link").symlink_to("usr/program")
    archive = tmp_path / "archive"
    initramfs.write(archive, *debian_guest.entries([folder / "link", program]))
    to = tmp_path / "to"
    to.mkdir()
    busybox = shutil.which("busybox")
    assert busybox is not None
    with archive.open("rb") as data:
        command = [busybox, "cpio", "-i", "-d"]
        subprocess.run(command, stdin=data, cwd=to, check=True, capture_output=True)
    unpacked = to / str(folder)[1:]
    assert (unpacked / "usr" / "program").read_bytes() == b"hello"
    assert (unpacked / "usr" / "program").stat().st_mode & 0o777 == 0o755
    assert (unpacked / "link").readlink() == Path("usr/program")


def test_kernel_finds_the_fields_where_it_looks_for_them() -> None:
    data = initramfs.entry("init", initramfs.PROGRAM, b"hello")
    assert data[:6] == b"070701"
    assert len(data) % 4 == 0
    assert data.index(b"init\0") == 110
    assert data[116:121] == b"hello"


def test_python_and_a_shell_are_in_what_guests_boot() -> None:
    """Of this machine's own packages."""
    packages = debian_guest.closure(debian_guest.installed(), debian_guest.ROOTS)
    files = [str(path) for path in debian_guest.files(packages)]
    assert {"/usr/bin/bash", "/usr/bin/dd", "/usr/bin/python3"} <= set(files)
    assert any(path.endswith("/libc.so.6") for path in files)
    assert not [path for path in files if "/man/" in path]
