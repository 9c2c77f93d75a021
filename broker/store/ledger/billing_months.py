"""Billing months: the spend of each team, late records for earlier months, the entries that are billed in a month, and
statements of closed months, each written once.

Inside the caller's transaction; without simulated money.

A record is late if its number is higher than that of a given entry, whatever the time of its posting. Writing is
serialised, so numbers increase in the order in which entries become visible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from pydantic import TypeAdapter
from sqlalchemy import Connection, and_, func, or_, select

from broker.core.market.offers import BOUGHT, MoneyKind
from broker.core.values.money import Money
from broker.finops.change import NOBODY
from broker.finops.focus.charges import SpentEntry
from broker.finops.focus.months import BillingMonth
from broker.finops.showback import Statement, TeamCost
from broker.ledger.entries import Account, Entry, Movement
from broker.ledger.sums import amount_before
from broker.store.engine.times import from_micros, to_micros
from broker.store.ledger.ledger import TAG_COLUMNS, tags_of
from broker.store.ledger.month_use import IN_ADVANCE, paid_in
from broker.store.tables.jobs import MACHINE_TIME
from broker.store.tables.ledger import ENTRY, STATEMENT

_C = ENTRY.c
_OWN = [kind.value for kind in BOUGHT]


@dataclass(frozen=True, slots=True)
class TeamSpending:
    """The cost of each team's own use (USD). ``bought_in_advance``: payments for capacity, which are not use."""

    costs: tuple[TeamCost, ...]
    bought_in_advance: Money


@dataclass(frozen=True, slots=True)
class LateSpending:
    """By month (``2026-10``) and team, the late amounts (USD), without zeros. ``bought_in_advance``: as
    in `TeamSpending`."""

    costs: Mapping[tuple[str, str], Money]
    bought_in_advance: Money


def team_spending(connection: Connection, start: datetime, end: datetime) -> TeamSpending:
    """The cost of each team's own use in the half-open period (UTC)."""
    sums: defaultdict[tuple[str, MoneyKind], Money] = defaultdict(lambda: Money.ZERO)
    on_own: defaultdict[str, Money] = defaultdict(lambda: Money.ZERO)
    bought_in_advance = Money.ZERO
    for paid in paid_in(connection, (_C.team, _C.capacity_type), start, end):
        if paid.in_advance:
            bought_in_advance += paid.amount
        else:
            team, capacity = paid.tags[0] or NOBODY, paid.tags[1]
            sums[team, paid.kind] += paid.amount
            on_own[team] += paid.amount if capacity in _OWN else Money.ZERO
    teams = sorted({team for team, _ in sums})
    costs = [
        TeamCost(team, sums[team, MoneyKind.CASH], sums[team, MoneyKind.AMORTISED], on_own=on_own[team])
        for team in teams
    ]
    return TeamSpending(tuple(costs), bought_in_advance)


def last_entry(connection: Connection) -> int:
    """The number of the newest ledger entry; 0 without any."""
    return connection.scalar(select(func.max(_C.id))) or 0


def recorded_after(connection: Connection, entry: int, months: Sequence[BillingMonth]) -> LateSpending:
    """The entries for those months after the ledger entry with that number, summed by month and team."""
    costs: defaultdict[tuple[str, str], Money] = defaultdict(lambda: Money.ZERO)
    bought_in_advance = Money.ZERO
    edges = [(month.name, to_micros(month.start), to_micros(month.end)) for month in months]
    if not edges:
        return LateSpending({}, bought_in_advance)
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
                bought_in_advance += Money(until - before)
            else:
                costs[name, row.team or NOBODY] += Money(until - before)
    return LateSpending({key: amount for key, amount in sorted(costs.items()) if amount}, bought_in_advance)


def statement(connection: Connection, month: str) -> Statement | None:
    """The statement of a closed month (``2026-10``); None if there is none."""
    body = connection.scalar(select(STATEMENT.c.body).where(STATEMENT.c.month == month))
    return None if body is None else _adapter().validate_json(body)


def statements(connection: Connection) -> Sequence[Statement]:
    """All statements, newest month first."""
    bodies = connection.scalars(select(STATEMENT.c.body).order_by(STATEMENT.c.month.desc()))
    return [_adapter().validate_json(body) for body in bodies]


def add_statement(connection: Connection, frozen: Statement) -> None:
    """Store a statement permanently. Raises ValueError if the month has one."""
    if statement(connection, frozen.month) is not None:
        raise ValueError(f"the statement of {frozen.month} is frozen")
    body = _adapter().dump_json(frozen).decode()
    values = {"month": frozen.month, "frozen_at": to_micros(frozen.frozen_at), "frozen_by": frozen.frozen_by}
    connection.execute(STATEMENT.insert().values(**values, body=body))


@cache
def _adapter() -> TypeAdapter[Statement]:
    return TypeAdapter(Statement)


_AT_ONCE = 5_000  # entries read at once
_MOVEMENTS = {movement.value: movement for movement in Movement}
_KINDS = {kind.value: kind for kind in MoneyKind}


def billed_in(connection: Connection, month: BillingMonth) -> Iterator[SpentEntry]:
    """The entries that may be billed in the month, in whole or in part (see `broker.finops.focus.months`), in posting
    order, streamed. Without simulated money.
    """
    c, machine = ENTRY.c, MACHINE_TIME.c
    start, end = to_micros(month.start), to_micros(month.end)
    closed, closes = to_micros(month.before.closes), to_micros(month.closes)
    of_it = and_(c.covers_from < end, or_(c.covers_to > start, c.covers_from >= start))
    late = and_(c.at >= closed, c.covers_from < start)
    of_machines = and_(machine.job_id == c.job_id, machine.attempt == c.attempt)
    query = (
        select(
            c.movement_id, c.movement, c.micros, c.money, c.at, c.covers_from, c.covers_to, c.note, *TAG_COLUMNS,
            machine.instance_type, machine.nodes, c.id,
        )
        .select_from(ENTRY.outerjoin(MACHINE_TIME, of_machines))
        .where(c.account == Account.SPENT.value, c.money != MoneyKind.SANDBOX.value, c.at < closes, or_(of_it, late))
        .order_by(c.id)
        .limit(_AT_ONCE)
    )  # fmt: skip
    last = 0
    while rows := connection.execute(query.where(c.id > last)).all():
        for row in rows:
            id, movement, micros, money, at, since, until, note, *tags, instance_type, nodes, _ = row
            entry = Entry(
                id, _MOVEMENTS[movement], Account.SPENT, Money(micros), _KINDS[money], from_micros(at),
                from_micros(since), from_micros(until), tags_of(tuple(tags)), note,
            )  # fmt: skip
            yield SpentEntry(entry, instance_type, nodes)
        last = rows[-1].id
