"""Assigns amounts to billing months. Pure; amounts in micro-dollars, times as in `Entry`.

A month stays open for `OPEN_FOR` after its end, because settlements and charges arrive late. An amount for an earlier
month that is posted after that is billed as a correction in the month then open. So the rows of a closed month never
change, and all months together equal the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from typing import ClassVar, Self

from broker.core.values.units import zone
from broker.ledger.budgets import period_containing
from broker.ledger.entries import amount_before

OPEN_FOR = timedelta(days=3)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class BillingMonth:
    """A calendar month in its time zone, from ``start`` until before ``end`` (UTC)."""

    start: datetime
    end: datetime
    timezone: str = "UTC"
    kind: ClassVar[str] = "month"

    @classmethod
    def of(cls, at: datetime, timezone: str = "UTC") -> Self:
        """The month of that time."""
        return cls(*period_containing(cls.kind, timezone, at), timezone)

    @classmethod
    def parse(cls, text: str, timezone: str = "UTC") -> BillingMonth:
        """The month of ``2026-11``. Raises ValueError, also for a month at the end of the calendar."""
        start = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
        if not MINYEAR < start.year < MAXYEAR:
            raise ValueError(f"{text} is at the end of the calendar")
        return cls.of(start + timedelta(days=14), timezone)

    @property
    def name(self) -> str:
        """``2026-11``"""
        return f"{self.start.astimezone(zone(self.timezone)):%Y-%m}"

    @property
    def before(self) -> Self:
        return type(self).of(self.start - timedelta(days=1), self.timezone)

    @property
    def reviews(self) -> tuple[str, ...]:
        """The names of the reviews that are about this time alone."""
        return (self.name,)

    @property
    def closes(self) -> datetime:
        """The time (UTC) from which nothing is added to the month."""
        return self.end + OPEN_FOR


class BillingQuarter(BillingMonth):
    """A quarter of a calendar year, which is reviewed as a month is."""

    __slots__ = ()
    kind = "quarter"

    @classmethod
    def parse(cls, text: str, timezone: str = "UTC") -> Self:
        """The quarter of ``2026-Q4``. Raises ValueError."""
        year, _, number = text.partition("-Q")
        if number not in ("1", "2", "3", "4"):
            raise ValueError(f"{text} is no quarter")
        return cls.of(BillingMonth.parse(f"{year}-{3 * int(number):02}", timezone).start, timezone)

    @property
    def name(self) -> str:
        """``2026-Q4``"""
        start = self.start.astimezone(zone(self.timezone))
        return f"{start.year}-Q{(start.month + 2) // 3}"

    @property
    def reviews(self) -> tuple[str, ...]:
        last = BillingMonth.of(self.end - timedelta(days=1), self.timezone)
        return last.before.before.name, last.before.name, last.name, self.name


@dataclass(frozen=True, slots=True)
class MonthlyPart:
    """The part of an amount (micro-dollars) that is billed in a month, for the time from ``since`` until ``until``
    (UTC). ``correction``: the time is in an earlier, closed month."""

    micros: int
    since: datetime
    until: datetime
    correction: bool


def parts(
    micros: int, covers_from: datetime, covers_to: datetime, posted: datetime, month: BillingMonth
) -> Iterator[MonthlyPart]:
    """The parts of an amount that are billed in ``month``: at most one for time in the month itself, and one for each
    earlier month that was closed when the amount was posted. Parts of zero are omitted."""
    if posted < month.closes and (part := _part_in_month(micros, covers_from, covers_to, month, correction=False)):
        yield part
    if (
        covers_from >= month.start or not month.start + OPEN_FOR <= posted < month.closes
    ):  # the month before was open then
        return
    earlier, corrections = month.before, []
    while covers_from < earlier.end:
        if part := _part_in_month(micros, covers_from, covers_to, earlier, correction=True):
            corrections.append(part)
        earlier = earlier.before
    yield from reversed(corrections)


def _part_in_month(
    micros: int, covers_from: datetime, covers_to: datetime, month: BillingMonth, *, correction: bool
) -> MonthlyPart | None:
    if month.start <= covers_from < month.end and covers_to < month.end:
        part = micros  # most amounts are for a short time
    else:
        start, end = _micros(covers_from), _micros(covers_to)
        left, right = _micros(month.start), _micros(month.end)
        part = amount_before(micros, start, end, right) - amount_before(micros, start, end, left)
    if not part:
        return None
    return MonthlyPart(part, max(covers_from, month.start), min(max(covers_to, covers_from), month.end), correction)


def _micros(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND
