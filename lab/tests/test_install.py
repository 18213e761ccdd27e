# SPDX-License-Identifier: GPL-2.0-only
"""What `make install` puts below DESTDIR, and `make uninstall` takes away."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nuksmlab import paths

Install = Callable[[str, Path], None]


@pytest.fixture
def install(tmp_path_factory: pytest.TempPathFactory) -> Install:
    """From a repository where the program that is tested is the one to install."""
    repository = tmp_path_factory.mktemp("repository")
    (repository / "packaging").symlink_to(paths.REPOSITORY / "packaging")
    program = repository / "target" / "release" / "nuksm"
    program.parent.mkdir(parents=True)
    program.symlink_to(paths.NUKSM)

    def run(command: str, root: Path) -> None:
        script = repository / "packaging" / "install.sh"
        environment = {**os.environ, "DESTDIR": str(root), "PREFIX": "/opt/nuksm"}
        subprocess.run([script, command], env=environment, check=True)

    return run


def files(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}


def test_all_is_installed_and_removed(install: Install, tmp_path: Path) -> None:
    install("install", tmp_path)
    installed = files(tmp_path)
    assert {
        "etc/nuksm.toml",
        "opt/nuksm/bin/nuksm",
        "opt/nuksm/lib/systemd/system/nuksm.service",
        "opt/nuksm/share/man/man8/nuksm.8",
        "opt/nuksm/share/man/man8/nuksm-engine-set.8",
        "opt/nuksm/share/bash-completion/completions/nuksm",
        "opt/nuksm/share/zsh/site-functions/_nuksm",
        "opt/nuksm/share/fish/vendor_completions.d/nuksm.fish",
    } <= installed
    unit = tmp_path / "opt/nuksm/lib/systemd/system/nuksm.service"
    assert unit.read_text().count("=/opt/nuksm/bin/nuksm ") == 2
    assert "PREFIX" not in unit.read_text()
    install("uninstall", tmp_path)
    assert files(tmp_path) == set()


def test_a_changed_configuration_stays(install: Install, tmp_path: Path) -> None:
    install("install", tmp_path)
    config = tmp_path / "etc/nuksm.toml"
    config.write_text("[place]\n")
    install("install", tmp_path)
    assert config.read_text() == "[place]\n"
    install("uninstall", tmp_path)
    assert files(tmp_path) == {"etc/nuksm.toml"}
