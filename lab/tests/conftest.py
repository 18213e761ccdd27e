# SPDX-License-Identifier: GPL-2.0-only
"""What several files of tests have."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from scratch import WAITS, put


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """All that kernel/build.sh wants, with nothing in it; its make never ends."""
    source = tmp_path / "cache" / "source" / "linux-6.12-1"
    put(source / "Kbuild", "")
    base = tmp_path / "kernel" / "base" / "6.12"
    put(base / "pin", f"{hashlib.sha256().hexdigest()}  Kbuild\n")
    put(base.parent / "lab.config", "")
    put(tmp_path / "kernel" / "apt.sh", "#!/bin/sh\necho Version: 1\n")
    for name in ("fixes/6.12", "hooks/6.12", "files/mm", "files/include"):
        put(tmp_path / "kernel" / name / "1.patch", "")
    put(tmp_path / "bin" / "patch", "#!/bin/sh\nexec cat\n")
    configured = tmp_path / "cache" / "work" / "6.12-lab" / "output" / ".config"
    configures = f"case $* in *allnoconfig) exec touch {configured} ;; esac\n"
    put(tmp_path / "bin" / "make", WAITS.format(place=tmp_path, before=configures))
    yield tmp_path
    (tmp_path / "end").touch()
