# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own unit tests of index and policy, which it ran when it started."""

from pathlib import Path

import pytest

from nuksmlab import numa

RESULTS = Path("/sys/kernel/debug/kunit/nuksm/results")


@pytest.mark.skipif(bool(numa.online()), reason="only User-Mode Linux has them")
def test_unit_tests_in_the_kernel_passed() -> None:
    lines = RESULTS.read_text().splitlines()
    assert not [line for line in lines if "not ok" in line], "\n".join(lines)
    assert lines[-1].startswith("ok ")
