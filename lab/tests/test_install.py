# SPDX-License-Identifier: GPL-2.0-only
"""What `make install` puts below DESTDIR, and `make uninstall` takes away."""

import os
import subprocess
from pathlib import Path

from nuksmlab import paths


def install(command: str, root: Path) -> None:
    script = paths.REPOSITORY / "packaging" / "install.sh"
    environment = {**os.environ, "DESTDIR": str(root), "PREFIX": "/opt/nuksm"}
    subprocess.run([script, command], env=environment, check=True)


def files(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}


def test_all_is_installed_and_removed(tmp_path: Path) -> None:
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


def test_a_changed_configuration_stays(tmp_path: Path) -> None:
    install("install", tmp_path)
    config = tmp_path / "etc/nuksm.toml"
    config.write_text("[place]\n")
    install("install", tmp_path)
    assert config.read_text() == "[place]\n"
    install("uninstall", tmp_path)
    assert files(tmp_path) == {"etc/nuksm.toml"}
