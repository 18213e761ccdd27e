# SPDX-License-Identifier: GPL-2.0-only
"""Waiting: a deadline is for what does not come, not for who looks late."""

import time

import pytest

from nuksmlab import wait


def test_what_came_while_nobody_looked_has_come() -> None:
    """As where this process had no CPU for so long."""
    came: list[bool] = []

    def looked() -> bool:
        if came:
            return True
        came.append(True)
        time.sleep(0.01)
        return False

    wait.until(looked, lambda: "it", seconds=0)


def test_what_does_not_come_is_said() -> None:
    with pytest.raises(wait.DeadlineError, match="not within 0 s: rain"):
        wait.until(lambda: False, lambda: "rain", seconds=0)
