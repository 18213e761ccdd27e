# SPDX-License-Identifier: GPL-2.0-only
"""What is remembered of whether KVM works here."""

import os
from pathlib import Path
from unittest import mock

import pytest

from nuksmlab import accelerator


def test_that_kvm_fails_is_not_remembered_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been a host that was busy."""
    monkeypatch.setenv("NUKSM_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: True)
    monkeypatch.setattr(accelerator, "qemu_version", lambda: "7")
    probe = mock.Mock(return_value=False)
    monkeypatch.setattr(accelerator, "probe", probe)

    def works_after(hours: float) -> bool:
        for verdict in tmp_path.iterdir():
            then = verdict.stat().st_mtime - hours * 3600
            os.utime(verdict, (then, then))
        return accelerator.kvm_works(Path("/k"))

    assert not works_after(0)
    probe.return_value = True
    assert not works_after(23)
    assert works_after(2)
    probe.return_value = False
    assert works_after(1000)
    assert probe.call_count == 2
