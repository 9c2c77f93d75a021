"""The current month by day, with what is expected of it and what of it was wasted."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, date, timedelta
from itertools import dropwhile

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
    expected: Money | None = None
    expected_low: Money | None = None
    expected_high: Money | None = None
    lost_work: Money
    unused_capacity: Money | None

    @property
    def spent(self) -> Money:
        return _sum(day.spent for day in self.days)

    @property
    def wasted(self) -> Money:
        return self.lost_work + (self.unused_capacity or Money.ZERO)


@dataclass(frozen=True, slots=True)
class MonthByTeam:
    """The month of all teams (None: jobs without one). ``days``: the spend of each day from `MAX_DAYS` before the first
    of the month up to ``today``; ``last``: its last day (UTC)."""

    today: date
    last: date
    days: Mapping[str | None, Sequence[Money]]
    lost_work: Mapping[str | None, Money]
    unused_capacity: Money

    def report(self, teams: Collection[str] | None) -> MonthSoFar:
        """Of these teams (None: of all)."""
        visible = [days for team, days in self.days.items() if teams is None or team in teams]
        lost = [amount for team, amount in self.lost_work.items() if teams is None or team in teams]
        days = [_sum(row[number] for row in visible) for number in range(MAX_DAYS + self.today.day)]
        known = list(dropwhile(lambda amount: not amount, (float(day.dollars) for day in days[:-1])))
        ahead, spent = expect(known, self.last.day - self.today.day + 1), _sum(days[MAX_DAYS:-1])
        rest = astuple(ahead) if ahead else ()
        month = dict(zip(_EXPECTED, (spent + max(days[-1], Money.usd(f"{usd:.2f}")) for usd in rest), strict=False))
        return MonthSoFar(
            days=[
                DaySpend(day=self.today.replace(day=number), spent=amount)
                for number, amount in enumerate(days[MAX_DAYS:], start=1)
            ],
            last=self.last,
            lost_work=_sum(lost),
            unused_capacity=self.unused_capacity if teams is None else None,
            **month,
        )


_EXPECTED = ("expected", "expected_low", "expected_high")


def month_by_team(broker: Broker) -> MonthByTeam:
    """The current month of all teams."""
    now = broker.clock.now().astimezone(UTC)
    start, end = period_containing("month", "UTC", now)
    lost_work: dict[str | None, Money] = {}
    with broker.store.reading() as reader:
        days = reader.daily_by_team(start - MAX_DAYS * _DAY, start + now.day * _DAY)
        cells = reader.used_in(start, now, now).cells
    for cell, used in cells.items():
        lost_work[cell.team] = lost_work.get(cell.team, Money.ZERO) + used.wasted
    holdings = [recorded.holding for recorded in broker.store.holdings()]
    unused = _sum(idle.cost for idle in idle_in(holdings, cells, start, now))
    return MonthByTeam(now.date(), (end - _DAY).date(), days, lost_work, unused)


def _sum(amounts: Iterable[Money]) -> Money:
    return sum(amounts, Money.ZERO)
