"""How often a provider is asked when nobody says."""

from __future__ import annotations

from datetime import timedelta

import pytest

from broker.market.poller import LATEST, SOONEST, interval


@pytest.mark.parametrize(
    ("limit", "every"),
    [("1h", "20m"), ("2h", "40m"), ("5m", "10m"), ("7d", "6h")],
)
def test_three_times_within_the_limit_but_neither_always_nor_never(limit: str, every: str) -> None:
    from broker.core.values.units import parse_duration

    assert interval(parse_duration(limit), has_offers=True) == parse_duration(every)


def test_what_has_no_limit_is_asked_now_and_then_and_what_is_not_known_soon() -> None:
    assert interval(None, has_offers=True) == LATEST
    assert interval(None, has_offers=False) == interval(timedelta(days=9), has_offers=False) == SOONEST
