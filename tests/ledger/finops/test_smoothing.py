"""Models of daily spending, averaged by how likely each is."""

import random

import pytest

from broker.ledger.finops.expectation import FittedModels


def noisy(length: int, spread: float, seed: int = 4) -> list[float]:
    chance = random.Random(seed)
    return [chance.gauss(100, spread) for _ in range(length)]


def test_steady_spending_goes_on() -> None:
    found = FittedModels([40.0] * 30).predict(10)
    assert found.mean == pytest.approx(400, rel=0.01)
    assert found.deviation < 0.1 * 400


def test_a_level_that_moved_is_followed() -> None:
    assert FittedModels([10.0] * 20 + [100.0] * 20).predict(5).mean == pytest.approx(500, rel=0.05)


def test_noise_around_a_level_is_averaged() -> None:
    """A sum of ten days deviates by the root of ten days' noise, and a little for what is not known."""
    found = FittedModels(noisy(80, 20)).predict(10)
    assert found.mean == pytest.approx(1000, rel=0.06)
    assert 20 * 10**0.5 < found.deviation < 2 * 20 * 10**0.5


def test_what_grew_goes_on_growing() -> None:
    chance = random.Random(3)
    days = [100 * 1.02 ** (day / 7) * chance.gauss(1, 0.03) for day in range(80)]
    came = sum(100 * 1.02 ** (day / 7) for day in range(80, 100))
    found, flat = FittedModels(days).predict(20).mean, 20 * sum(days[-7:]) / 7
    assert flat < found < came * 1.03


def test_a_short_burst_is_not_the_new_level() -> None:
    """Where days of ten times as much came and went before, the next is foretold to go, too."""
    days = ([100.0, 102.0, 98.0] * 3 + [1000.0]) * 6
    assert FittedModels(days).predict(10).mean < 0.4 * 10_000


def test_earlier_days_are_answered_for_as_if_the_later_ones_were_not_known() -> None:
    days = noisy(40, 30)
    for after in (7, 20, 39):
        early, alone = FittedModels(days).predict(10, after=after), FittedModels(days[:after]).predict(10)
        assert early.mean == pytest.approx(alone.mean, rel=1e-9)
        assert early.deviation == pytest.approx(alone.deviation, rel=1e-9)


def test_no_day_is_refused() -> None:
    with pytest.raises(ValueError, match="no day"):
        FittedModels([])
