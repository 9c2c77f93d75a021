"""How often a provider is asked when nobody says: three times within the age at which its prices are too old."""

from __future__ import annotations

from datetime import timedelta

SOONEST = timedelta(minutes=10)
LATEST = timedelta(hours=6)
_TIMES_WITHIN_LIMIT = 3


def interval(limit: timedelta | None, *, has_offers: bool) -> timedelta:
    """The time between two polls. ``limit``: the shortest age limit among the provider's offers, if any has one.

    Spot prices that age in an hour are asked for every twenty minutes, list prices that hold for days four times a
    day; a provider that has told of nothing (it is new, or was out of reach) is tried often.
    """
    if not has_offers:
        return SOONEST
    return LATEST if limit is None else min(max(limit / _TIMES_WITHIN_LIMIT, SOONEST), LATEST)
