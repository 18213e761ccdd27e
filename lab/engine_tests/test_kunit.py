# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own unit tests of index and policy, which it ran when it started."""

from pathlib import Path

import pytest

from nuksmlab import numa

SUITES = Path("/sys/kernel/debug/kunit")


@pytest.mark.skipif(bool(numa.online()), reason="only User-Mode Linux has them")
@pytest.mark.parametrize("suite", ["nuksm", "nuksm_budget"])
def test_unit_tests_in_the_kernel_passed(suite: str) -> None:
    lines = (SUITES / suite / "results").read_text().splitlines()
    assert not [line for line in lines if "not ok" in line], "\n".join(lines)
    assert lines[-1].startswith("ok ")
