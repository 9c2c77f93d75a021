"""What each team spent in a billing month, and what was posted about it after it was closed. Inside the caller's
transaction; simulated money is left out.

Months are closed, and amounts divided between them, as `broker.finops.focus.months` says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, select

from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.finops.change import NOBODY
from broker.finops.focus.months import OPEN_FOR, BillingMonth, parts
from broker.finops.showback import TeamCost
from broker.ledger.entries import Account
from broker.store.engine.times import from_micros, to_micros
from broker.store.ledger.month_use import paid_in
from broker.store.tables import ENTRY

_C = ENTRY.c
_LATE = (_C.team, _C.micros, _C.covers_from, _C.covers_to, _C.at)


@dataclass(frozen=True, slots=True)
class TeamSpending:
    """By team, what its own use cost (USD). ``bought``: what was paid in advance for capacity, which is no use."""

    costs: tuple[TeamCost, ...]
    bought: Money


def team_spending(connection: Connection, start: datetime, end: datetime, posted_before: datetime) -> TeamSpending:
    """Of the half-open time, as far as it was posted before then (UTC)."""
    sums: defaultdict[tuple[str, MoneyKind], Money] = defaultdict(lambda: Money.ZERO)
    bought = Money.ZERO
    for paid in paid_in(connection, (_C.team,), start, end, _C.at < to_micros(posted_before)):
        if paid.in_advance:
            bought += paid.amount
        else:
            sums[paid.tags[0] or NOBODY, paid.kind] += paid.amount
    teams = sorted({team for team, _ in sums})
    costs = [TeamCost(team, sums[team, MoneyKind.CASH], sums[team, MoneyKind.AMORTISED]) for team in teams]
    return TeamSpending(tuple(costs), bought)


def corrections_billed_in(connection: Connection, month: BillingMonth) -> Mapping[tuple[str, str], Money]:
    """What was posted while the month was open about earlier ones that were closed, by their names (``2026-10``) and
    by team."""
    late = (_C.covers_from < to_micros(month.start), _C.at >= to_micros(month.before.closes))
    found: defaultdict[tuple[str, str], Money] = defaultdict(lambda: Money.ZERO)
    for row in connection.execute(_spent().where(*late, _C.at < to_micros(month.closes))):
        since, until, posted = (from_micros(time) for time in (row.covers_from, row.covers_to, row.at))
        for part in parts(row.micros, since, until, posted, month):
            if part.correction:
                found[BillingMonth.of(part.since).name, row.team or NOBODY] += Money(part.micros)
    return {key: amount for key, amount in sorted(found.items()) if amount}


def corrections_of(connection: Connection, month: BillingMonth) -> Mapping[tuple[str, str], Money]:
    """What was posted about the month since it was closed, by the names of the months in which that is billed, and by
    team."""
    closes, start, end = to_micros(month.closes), to_micros(month.start), to_micros(month.end)
    late = (_C.at >= closes, _C.covers_from < end, _C.covers_to >= start)
    found: defaultdict[tuple[str, str], Money] = defaultdict(lambda: Money.ZERO)
    for row in connection.execute(_spent().where(*late)):
        since, until, posted = (from_micros(time) for time in (row.covers_from, row.covers_to, row.at))
        billed = BillingMonth.of(posted - OPEN_FOR)
        for part in parts(row.micros, since, until, posted, billed):
            if part.correction and month.start <= part.since < month.end:
                found[billed.name, row.team or NOBODY] += Money(part.micros)
    return {key: amount for key, amount in sorted(found.items()) if amount}


def _spent() -> Select[Any]:
    return select(*_LATE).where(_C.account == Account.SPENT.value, _C.money != MoneyKind.SANDBOX.value)
