"""Terms of capacity: durations with years and months."""

from __future__ import annotations

from datetime import timedelta

from broker.core.errors import InvalidInput

_UNITS = {"mo": 365 / 12, "y": 365.0}
_LONGEST = 100 * 365


def length(option: str, text: str) -> timedelta:
    """A duration as `broker.core.values.units` reads it (``720h``, ``30d``), or in years of 365 days or months of a
    twelfth of a year: ``3y``, ``36mo``. Raises `InvalidInput` naming the option."""
    from broker.cli import filters

    bare = text.strip().lower()
    for unit, days in _UNITS.items():
        amount = bare.removesuffix(unit)
        if amount == bare or not amount.replace(".", "", 1).isdecimal():
            continue
        if not 0 < float(amount) * days <= _LONGEST:
            raise InvalidInput(f"expected more than zero and at most 100 years; got {text!r}", where=option)
        return timedelta(days=float(amount) * days)
    return filters.duration(option, text)


def hours(option: str, text: str) -> int:
    """The duration in whole hours, at least one. Raises `InvalidInput` naming the option."""
    found = length(option, text)
    if found < timedelta(hours=1):
        raise InvalidInput(f"expected 1 hour or more; got {text!r}", where=option)
    return round(found / timedelta(hours=1))
