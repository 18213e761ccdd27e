# SPDX-License-Identifier: GPL-2.0-only
"""Samples that differ are told from those that do not."""

from random import Random

import pytest

from nuksmlab.ranks import rank_sum


def test_samples_of_one_kind_do_not_differ() -> None:
    choose = Random(1)
    values = [choose.gauss(10, 1) for _ in range(1000)]
    p, effect = rank_sum(values[::2], values[1::2])
    assert p > 0.01
    assert effect == pytest.approx(0.5, abs=0.05)


def test_samples_that_differ_are_told_apart() -> None:
    choose = Random(1)
    slow = [choose.gauss(10.5, 1) for _ in range(500)]
    fast = [choose.gauss(10, 1) for _ in range(500)]
    p, effect = rank_sum(slow, fast)
    assert p < 1e-6
    assert 0.6 < effect < 0.7
    assert rank_sum(fast, slow) == pytest.approx((p, 1 - effect))


def test_ranks_by_hand() -> None:
    """Of nine pairs, in seven and a half the left one is greater: a tie counts half."""
    p, effect = rank_sum([2, 4, 5], [1, 2, 3])
    assert effect == pytest.approx(7 / 9 + 0.5 / 9)
    # 7.5 is 3 above the mean; the variance is 9 / 12 * (7 - 6 / 30).
    assert p == pytest.approx(0.184, abs=1e-3)
    assert rank_sum([1, 1], [1, 1]) == (1.0, 0.5)
