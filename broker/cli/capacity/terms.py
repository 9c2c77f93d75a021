"""Terms of capacity: durations with years and months."""

from __future__ import annotations

from datetime import timedelta

from broker.core.errors import InvalidInput


def length(option: str, text: str) -> timedelta:
    """A duration above zero, as `broker.core.values.units.parse_term` reads it. Raises `InvalidInput` naming the
    option."""
    from broker.core.values.units import parse_term

    try:
        return parse_term(text)
    except ValueError as error:
        raise InvalidInput(str(error), where=option) from error


def hours(option: str, text: str) -> int:
    """The duration in whole hours, at least one. Raises `InvalidInput` naming the option."""
    found = length(option, text)
    if found < timedelta(hours=1):
        raise InvalidInput(f"expected 1 hour or more; got {text!r}", where=option)
    return round(found / timedelta(hours=1))
