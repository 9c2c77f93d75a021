"""The spend of each team in a period, and late records for earlier months.

Inside the caller's transaction; without simulated money.

A record is late if its number is higher than that of a given entry, whatever the time of its posting. Writing is
serialised, so numbers increase in the order in which entries become visible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, select

from broker.core.market.offers import BOUGHT, MoneyKind
from broker.core.values.money import Money
from broker.finops.change import NOBODY
from broker.finops.focus.months import BillingMonth
from broker.finops.showback import TeamCost
from broker.ledger.entries import Account
from broker.ledger.sums import amount_before
from broker.store.engine.times import to_micros
from broker.store.ledger.month_use import IN_ADVANCE, paid_in
from broker.store.tables.ledger import ENTRY

_C = ENTRY.c
_OWN = [kind.value for kind in BOUGHT]


@dataclass(frozen=True, slots=True)
class TeamSpending:
    """The cost of each team's own use (USD). ``bought``: payments in advance for capacity, which are not use."""

    costs: tuple[TeamCost, ...]
    bought: Money


@dataclass(frozen=True, slots=True)
class LateSpending:
    """By month (``2026-10``) and team, the late amounts (USD), without zeros. ``bought``: as in `TeamSpending`."""

    costs: Mapping[tuple[str, str], Money]
    bought: Money


def team_spending(connection: Connection, start: datetime, end: datetime) -> TeamSpending:
    """The cost of each team's own use in the half-open period (UTC)."""
    sums: defaultdict[tuple[str, MoneyKind], Money] = defaultdict(lambda: Money.ZERO)
    on_own: defaultdict[str, Money] = defaultdict(lambda: Money.ZERO)
    bought = Money.ZERO
    for paid in paid_in(connection, (_C.team, _C.capacity_type), start, end):
        if paid.in_advance:
            bought += paid.amount
        else:
            team, capacity = paid.tags[0] or NOBODY, paid.tags[1]
            sums[team, paid.kind] += paid.amount
            on_own[team] += paid.amount if capacity in _OWN else Money.ZERO
    teams = sorted({team for team, _ in sums})
    costs = [
        TeamCost(team, sums[team, MoneyKind.CASH], sums[team, MoneyKind.AMORTISED], on_own=on_own[team])
        for team in teams
    ]
    return TeamSpending(tuple(costs), bought)


def last_entry(connection: Connection) -> int:
    """The number of the newest ledger entry; 0 without any."""
    return connection.scalar(select(func.max(_C.id))) or 0


def recorded_after(connection: Connection, entry: int, months: Sequence[BillingMonth]) -> LateSpending:
    """The entries for those months after the ledger entry with that number, summed by month and team."""
    costs: defaultdict[tuple[str, str], Money] = defaultdict(lambda: Money.ZERO)
    bought = Money.ZERO
    edges = [(month.name, to_micros(month.start), to_micros(month.end)) for month in months]
    if not edges:
        return LateSpending({}, bought)
    query = select(_C.team, _C.micros, _C.covers_from, _C.covers_to, IN_ADVANCE.label("advance")).where(
        _C.id > entry,
        _C.account == Account.SPENT.value,
        _C.money != MoneyKind.SANDBOX.value,
        _C.covers_to + 0 >= min(left for _, left, _ in edges),  # no index by time: the few newest are found by id
        _C.covers_from < max(right for _, _, right in edges),
    )
    for row in connection.execute(query):
        for name, left, right in edges:
            until, before = (amount_before(row.micros, row.covers_from, row.covers_to, edge) for edge in (right, left))
            if row.advance:
                bought += Money(until - before)
            else:
                costs[name, row.team or NOBODY] += Money(until - before)
    return LateSpending({key: amount for key, amount in sorted(costs.items()) if amount}, bought)
