"""Held money and how it is used up over time. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from broker.core.values.money import Money, in_microseconds

_HOUR_IN_MICROSECONDS = in_microseconds(timedelta(hours=1))


@dataclass(frozen=True, slots=True)
class Burn:
    """An amount of held money (USD) with the time for which it was judged.

    Used from ``start`` (UTC), at ``rate`` at most (USD per hour for all machines), not after ``end`` (UTC). What the
    rate cannot use by then, such as egress at a start, counts at the beginning.
    """

    amount: Money
    start: datetime
    end: datetime
    rate: Money

    @classmethod
    def evenly(cls, amount: Money, window: tuple[datetime, datetime]) -> Burn:
        """The amount spread over the whole window. In an empty window, all of it counts at the beginning."""
        start, end = window
        return cls(amount, start, max(start, end), rate_over(amount, end - start))

    def seen(self, now: datetime) -> Burn:
        """The same money from ``now``: none of it can be used earlier, and at the full rate it ends when the amount is
        used up.

        A hold is never dated ahead. A start after ``now`` means that the clock was set back since; the hold then counts
        from now for its original length.
        """
        end = max(self.end_at(now), now)
        return replace(self, start=now, end=min(end, _exhausted_at(now, self.amount, self.rate)))

    def end_at(self, now: datetime) -> datetime:
        """The end of the time for which it was judged; if the clock was set back (``start`` is after ``now``), that
        time counts from ``now``."""
        return now + (self.end - self.start) if self.start > now else self.end

    def before(self, edge: datetime) -> Money:
        """The amount that may be used before ``edge`` without using money approved for later."""
        judged_later = self.rate.for_duration(max(self.end - edge, timedelta(0)))
        return max(self.amount - judged_later, Money.ZERO)

    def share(self, period: tuple[datetime, datetime]) -> Money:
        """The amount within a half-open period (UTC)."""
        return self.shares((period,))[0]

    def shares(self, periods: Iterable[tuple[datetime, datetime]]) -> list[Money]:
        """The amount within each of these half-open periods (UTC), in time linear in their number. Shares of adjoining
        periods that contain it add up to the amount."""
        whole = self.end - self.start
        timed, length = min(self.amount, self.rate.for_duration(whole)), in_microseconds(whole)

        def after(moment: datetime) -> Money:
            """The maximum amount that is used at ``moment`` or later."""
            if moment <= self.start:
                return self.amount
            if moment >= self.end:
                return Money.ZERO
            return timed.share(in_microseconds(self.end - moment), length)

        amounts, edge, rest = list[Money](), None, self.amount
        for start, end in periods:
            first = rest if start == edge else after(start)
            edge, rest = end, after(end)
            amounts.append(Money.ZERO if first is rest else first - rest)
        return amounts

    def last(self, amount: Money) -> Burn:
        """The last ``amount`` of this money to be used, with its own start."""
        start = self.end - amount.lasts(self.rate) if self.rate > Money.ZERO else self.start
        return replace(self, amount=amount, start=max(self.start, start))


def rate_over(amount: Money, time: timedelta) -> Money:
    """The least hourly rate (USD) that uses the amount within that time; zero for no time."""
    if time <= timedelta(0):
        return Money.ZERO
    return Money(-(-amount.micros * _HOUR_IN_MICROSECONDS // in_microseconds(time)))


def _exhausted_at(now: datetime, amount: Money, rate: Money) -> datetime:
    if rate <= Money.ZERO or amount <= Money.ZERO:
        return now
    try:
        return now + amount.lasts(rate)
    except OverflowError:  # it lasts longer than a datetime can express
        return datetime.max.replace(tzinfo=UTC)
