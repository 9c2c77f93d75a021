"""The current month by day, with what is expected of it and what of it was wasted."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from broker.app.documents import Result
from broker.app.wiring import Broker
from broker.core.values.money import Money
from broker.ledger.budgets import period_containing
from broker.ledger.finops.expectation import MAX_DAYS, expect
from broker.ledger.finops.idle import idle_in

_DAY = timedelta(days=1)


class DaySpend(Result):
    """The spend of jobs on a day (UTC), cash and amortized (USD)."""

    day: date
    spent: Money


class MonthSoFar(Result):
    """The current month (UTC). ``days``: up to today; ``last``: its last day. ``expected``: the spend of all its days,
    in four of five cases from ``expected_low`` to ``expected_high``; null for want of earlier days. ``lost_work``: paid
    for work that was lost; ``unused_capacity``: the part of the price of held GPUs for the hours without a job, null in
    the report of single teams. USD."""

    days: list[DaySpend]
    last: date
    expected: Money | None
    expected_low: Money | None
    expected_high: Money | None
    lost_work: Money
    unused_capacity: Money | None

    @property
    def spent(self) -> Money:
        return sum((day.spent for day in self.days), Money.ZERO)

    @property
    def wasted(self) -> Money:
        return self.lost_work + (self.unused_capacity or Money.ZERO)


@dataclass(frozen=True, slots=True)
class MonthByTeam:
    """The month of all teams (None: jobs without one). ``today``: midnight (UTC); ``days``: the spend of each day from
    `MAX_DAYS` before ``start`` up to today."""

    start: datetime
    today: datetime
    end: datetime
    days: Mapping[str | None, Sequence[Money]]
    lost_work: Mapping[str | None, Money]
    unused_capacity: Money

    def report(self, teams: Collection[str] | None) -> MonthSoFar:
        """Of these teams (None: of all)."""
        visible = [days for team, days in self.days.items() if teams is None or team in teams]
        count = MAX_DAYS + (self.today - self.start) // _DAY + 1
        days = [sum(amounts, Money.ZERO) for amounts in zip(*visible, strict=True)] or [Money.ZERO] * count
        *before, spent_today = days
        known = [float(day.dollars) for day in before]
        first = next((number for number, day in enumerate(known) if day), len(known))
        ahead = expect(known[first:], (self.end - self.today) // _DAY)
        spent = sum(before[MAX_DAYS:], Money.ZERO)
        expected, low, high = (
            ahead and spent + max(spent_today, Money.usd(f"{amount:.2f}"))
            for amount in ((ahead.amount, ahead.low, ahead.high) if ahead else (0.0, 0.0, 0.0))
        )
        return MonthSoFar(
            days=[
                DaySpend(day=(self.start + number * _DAY).date(), spent=amount)
                for number, amount in enumerate(days[MAX_DAYS:])
            ],
            last=(self.end - _DAY).date(),
            expected=expected,
            expected_low=low,
            expected_high=high,
            lost_work=sum(
                (amount for team, amount in self.lost_work.items() if teams is None or team in teams), Money.ZERO
            ),
            unused_capacity=self.unused_capacity if teams is None else None,
        )


def month_by_team(broker: Broker) -> MonthByTeam:
    """The current month of all teams."""
    now = broker.clock.now()
    start, end = period_containing("month", "UTC", now)
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    lost_work: dict[str | None, Money] = {}
    with broker.store.reading() as reader:
        days = reader.daily_by_team(start - MAX_DAYS * _DAY, today + _DAY)
        cells = reader.used_in(start, now, now).cells
    for cell, used in cells.items():
        lost_work[cell.team] = lost_work.get(cell.team, Money.ZERO) + used.wasted
    holdings = [recorded.holding for recorded in broker.store.holdings()]
    unused = sum((idle.cost for idle in idle_in(holdings, cells, start, now)), Money.ZERO)
    return MonthByTeam(start, today, end, days, lost_work, unused)
