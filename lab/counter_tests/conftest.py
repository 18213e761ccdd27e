# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the plugin that counts. They run in an emulated machine only."""

import os

import pytest


def pytest_sessionstart() -> None:
    if "NUKSM_OUTPUT" not in os.environ:
        pytest.exit("these tests run in a counting machine: make counter", returncode=2)
