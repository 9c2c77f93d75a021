"""Formats of times and sizes in plans."""

from __future__ import annotations

from datetime import timedelta

from broker.core.values.money import Money

_CENT = Money.usd("0.01")
_HOUR = timedelta(hours=1)


def hours_of(time: timedelta) -> float:
    """The time in hours."""
    return time / _HOUR


def span(time: timedelta) -> str:
    """A timedelta in the format of `hours`."""
    return hours(time / _HOUR)


def hours(value: float) -> str:
    """``2.5 h``, ``12 min``, ``30 s``: hours with three significant digits, in the unit that fits."""
    if value >= 1:
        return f"{value:,.0f} h" if value >= 100 else f"{value:.3g} h"
    if value * 60 >= 1:
        return f"{value * 60:.3g} min"
    return f"{value * 3600:.3g} s"


def about(amount: Money) -> str:
    """An estimate, rounded to cents: ``$12.35``, ``less than $0.01``."""
    return f"less than {_CENT}" if Money.ZERO < amount < _CENT else amount.rounded()


def gigabytes(value: float) -> str:
    """Bytes as ``14 GB`` (10⁹), below 0.1 GB as ``14 MB`` (10⁶), below 10,000 as ``14 bytes``."""
    if value < 10_000:
        return f"{value:,.0f} bytes"
    if value < 0.1e9:
        return f"{value / 1e6:.3g} MB"
    return f"{value / 1e9:,.0f} GB" if value >= 100e9 else f"{value / 1e9:.3g} GB"
