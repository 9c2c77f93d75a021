"""Figures as text: those of `broker.core.values.figures`, and points in time in the user's time zone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from broker.core.values.figures import NO_VALUE, age, length, money, percent, plural, rate

if TYPE_CHECKING:
    from broker.core.market.offers import CapacityType

__all__ = [
    "NO_VALUE",
    "age",
    "length",
    "moment",
    "money",
    "parse_moment",
    "percent",
    "plural",
    "purchase_type",
    "rate",
    "text_or_dash",
]

V = TypeVar("V")


def text_or_dash(value: V | None, text: Callable[[V], str]) -> str:
    """The text of a value; a dash for one that is not known."""
    return NO_VALUE if value is None else text(value)


def moment(at: datetime | None) -> str:
    """The local time to the minute, with its time zone."""
    if at is None:
        return NO_VALUE
    local = at.astimezone()
    return f"{local:%Y-%m-%d %H:%M} {local:%Z}"


def purchase_type(kind: CapacityType, term_months: int | None = None) -> str:
    """``spot``, ``on-demand``, ``reserved 12m``."""
    return f"{kind.value.replace('_', '-')}{f' {term_months}m' if term_months else ''}"


def parse_moment(text: str, now: datetime) -> datetime:
    """A point in time from an option: ``7d`` (that long before ``now``), ``2026-11-01``, ``2026-11-01T12:00Z``.

    Dates and times without a zone are in the local time zone; the result is in UTC. Raises ValueError.
    """
    from broker.core.values.units import parse_duration

    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now - parse_duration(text)
        except ValueError:
            raise ValueError(
                f"expected a date (2026-11-01), a time (2026-11-01T12:00Z) or an age (7d); got {text!r}"
            ) from None
    return instant.astimezone(UTC)
