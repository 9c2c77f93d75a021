"""Default poll interval of a provider: a third of the age limit of its prices."""

from __future__ import annotations

from datetime import timedelta

SOONEST = timedelta(minutes=10)
LATEST = timedelta(hours=6)
_TIMES_WITHIN_LIMIT = 3


def interval(limit: timedelta | None, *, has_offers: bool) -> timedelta:
    """The time between two polls. ``limit``: the shortest age limit among the provider's offers, if any has one.

    Spot prices with a limit of an hour are polled every twenty minutes, list prices valid for days four times a day; a
    provider without offers (new, or unreachable) is polled often.
    """
    if not has_offers:
        return SOONEST
    return LATEST if limit is None else min(max(limit / _TIMES_WITHIN_LIMIT, SOONEST), LATEST)
