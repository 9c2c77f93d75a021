"""Simple exponential smoothing of daily spending."""

from __future__ import annotations

import math
import random

import pytest

from broker.finops.smoothing import smooth


def test_steady_spending_is_its_own_level() -> None:
    found = smooth([40.0] * 12)
    assert found.level == pytest.approx(40)
    assert found.spread == pytest.approx(0, abs=1e-9)


def test_a_level_that_moved_is_followed() -> None:
    assert smooth([10.0] * 10 + [100.0] * 10).level == pytest.approx(100, rel=0.01)


def test_noise_around_a_level_is_averaged() -> None:
    chance = random.Random(4)
    found = smooth([chance.gauss(100, 20) for _ in range(80)])
    assert found.weight <= 0.2
    assert found.level == pytest.approx(100, rel=0.1)
    assert found.spread == pytest.approx(20, rel=0.25)


def test_the_deviation_of_a_sum_grows_with_what_the_level_does() -> None:
    found = smooth([10.0] * 10 + [100.0] * 10)
    by_hand = found.spread * math.sqrt(1 + (1 + found.weight) ** 2 + (1 + 2 * found.weight) ** 2)
    assert found.deviation(3) == pytest.approx(by_hand)
    assert found.deviation(0) == 0


def test_no_day_is_refused() -> None:
    with pytest.raises(ValueError, match="no day"):
        smooth([])
