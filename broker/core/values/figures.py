"""Figures as text, the same for the command line and the page: money, ages, durations, shares, counts."""

from __future__ import annotations

from datetime import timedelta
from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.values.money import Money

NO_VALUE = "–"


def money(amount: Money | None, places: int = 2) -> str:
    """``$1,234.57``; amounts that would round to zero keep their significant digits."""
    if amount is None:
        return NO_VALUE
    if amount and abs(amount.micros) < 5_000:
        return amount.rounded(4) if abs(amount.micros) >= 50 else str(amount)
    return amount.rounded(places)


def rate(amount: Money | None) -> str:
    """An hourly price in USD; below $1 with three decimals."""
    if amount is None:
        return NO_VALUE
    return amount.rounded(3 if 0 < abs(amount.micros) < 1_000_000 else 2)


def length(time: timedelta | None) -> str:
    """``2d 3h``, ``1h 05m``, ``3m 12s``, ``8s``: the two largest units."""
    if time is None:
        return NO_VALUE
    seconds = round(time.total_seconds())
    if seconds < 0:
        return f"-{length(-time)}"
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m {seconds:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h {minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours}h"


def age(time: timedelta | None) -> str:
    """An age in its largest unit: ``8s``, ``12 min``, ``5 h``, ``40 d``."""
    if time is None:
        return NO_VALUE
    seconds = max(time.total_seconds(), 0)
    for size, unit in ((86_400, " d"), (3600, " h"), (60, " min")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def percent(part: float) -> str:
    return f"{part * 100:.0f} %"


def figure_of(number: float) -> float | None:
    """A number rounded to nine decimals, which removes rounding errors; None for infinity and NaN, which JSON does not
    have."""
    return round(number, 9) if isfinite(number) else None


def plural(count: int, singular: str, plural_form: str = "") -> str:
    """``1 offer``, ``2 offers``."""
    return f"{count:,} {singular if count == 1 else plural_form or singular + 's'}"


def join_names(names: Sequence[str], limit: int) -> str:
    """The first ``limit`` names: ``a, b and 3 more``."""
    others = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return f"{', '.join(names[:limit])}{others}"


_HOUR = timedelta(hours=1)


def hours_of(time: timedelta) -> float:
    """The time in hours."""
    return time / _HOUR


def duration_in_hours(time: timedelta) -> str:
    """A timedelta in the format of `hours`."""
    return hours(time / _HOUR)


def hours(value: float) -> str:
    """``2.5 h``, ``12 min``, ``30 s``: hours with three significant digits, in the unit that fits."""
    if value >= 1:
        return f"{value:,.0f} h" if value >= 100 else f"{value:.3g} h"
    if value * 60 >= 1:
        return f"{value * 60:.3g} min"
    return f"{value * 3600:.3g} s"


def estimate(amount: Money) -> str:
    """An estimate, rounded to cents: ``$12.35``, ``less than $0.01``."""
    return "less than $0.01" if 0 < amount.micros < 10_000 else amount.rounded()


def gigabytes(value: float) -> str:
    """Bytes as ``14 GB`` (10⁹), below 0.1 GB as ``14 MB`` (10⁶), below 10,000 as ``14 bytes``."""
    if value < 10_000:
        return f"{value:,.0f} bytes"
    if value < 0.1e9:
        return f"{value / 1e6:.3g} MB"
    return f"{value / 1e9:,.0f} GB" if value >= 100e9 else f"{value / 1e9:.3g} GB"
