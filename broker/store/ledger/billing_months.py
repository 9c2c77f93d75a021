"""Billing months: the spend of each team, late records for earlier months, the entries that are billed in a month, and
statements of closed months, each written once.

Inside the caller's transaction; without simulated money.

A record is late if its number is higher than that of a given entry, whatever the time of its posting. Writing is
serialized, so numbers increase in the order in which entries become visible.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from pydantic import TypeAdapter
from sqlalchemy import Connection, and_, func, insert, or_, select
from sqlalchemy.orm import outerjoin

from broker.core.market.offers import BOUGHT, MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import Account, Entry, Movement, amount_within
from broker.ledger.finops.change import NOBODY
from broker.ledger.finops.focus.charges import SpentEntry
from broker.ledger.finops.focus.months import BillingMonth
from broker.ledger.finops.showback import Statement, TeamCost
from broker.store.engine.fields import from_micros, to_micros
from broker.store.ledger.ledger import TAG_COLUMNS, tags_of
from broker.store.ledger.machine_time import depreciation
from broker.store.ledger.month_use import IN_ADVANCE, payments_in
from broker.store.schema.jobs import MachineTimeRow
from broker.store.schema.ledger import LedgerEntryRow, StatementRow
from broker.store.schema.row import columns_of


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
    for payment in payments_in(connection, (LedgerEntryRow.team, LedgerEntryRow.capacity_type), start, end):
        if payment.in_advance:
            bought_in_advance += payment.amount
        else:
            team, capacity = payment.tags[0] or NOBODY, payment.tags[1]
            sums[team, payment.kind] += payment.amount
            on_own[team] += payment.amount if capacity in BOUGHT else Money.ZERO
    worn = {team or NOBODY: amount for team, amount in depreciation(connection, start, end).items()}
    costs = [
        TeamCost(
            team, sums[team, MoneyKind.CASH], sums[team, MoneyKind.AMORTISED], worn.get(team, Money.ZERO),
            on_own=on_own[team] + worn.get(team, Money.ZERO),
        )
        for team in sorted({team for team, _ in sums} | worn.keys())
    ]  # fmt: skip
    return TeamSpending(tuple(costs), bought_in_advance)


def last_entry(connection: Connection) -> int:
    """The number of the newest ledger entry; 0 without any."""
    return connection.scalar(select(func.max(LedgerEntryRow.id))) or 0


def recorded_after(connection: Connection, entry: int, months: Sequence[BillingMonth]) -> LateSpending:
    """The entries for those months after the ledger entry with that number, summed by month and team."""
    costs: defaultdict[tuple[str, str], Money] = defaultdict(lambda: Money.ZERO)
    bought_in_advance = Money.ZERO
    edges = [(month.name, to_micros(month.start), to_micros(month.end)) for month in months]
    if not edges:
        return LateSpending({}, bought_in_advance)
    query = select(
        LedgerEntryRow.team,
        LedgerEntryRow.micros,
        LedgerEntryRow.covers_from,
        LedgerEntryRow.covers_to,
        IN_ADVANCE.label("advance"),
    ).where(
        LedgerEntryRow.id > entry,
        LedgerEntryRow.account == Account.SPENT.value,
        LedgerEntryRow.money != MoneyKind.SANDBOX.value,
        LedgerEntryRow.covers_to + 0
        >= min(left for _, left, _ in edges),  # no index by time: the few newest are found by id
        LedgerEntryRow.covers_from < max(right for _, _, right in edges),
    )
    for row in connection.execute(query):
        for name, left, right in edges:
            part = Money(amount_within(row.micros, row.covers_from, row.covers_to, left, right))
            if row.advance:
                bought_in_advance += part
            else:
                costs[name, row.team or NOBODY] += part
    return LateSpending({key: amount for key, amount in sorted(costs.items()) if amount}, bought_in_advance)


def statement(connection: Connection, month: str) -> Statement | None:
    """The statement of a closed month (``2026-10``); None if there is none."""
    body = connection.scalar(select(StatementRow.body).where(StatementRow.month == month))
    return None if body is None else _adapter().validate_json(body)


def statements(connection: Connection) -> Sequence[Statement]:
    """All statements, newest month first."""
    bodies = connection.scalars(select(StatementRow.body).order_by(StatementRow.month.desc()))
    return [_adapter().validate_json(body) for body in bodies]


def add_statement(connection: Connection, new_statement: Statement) -> None:
    """Store a statement permanently. Raises ValueError if the month has one."""
    if statement(connection, new_statement.month) is not None:
        raise ValueError(f"the statement of {new_statement.month} is frozen")
    body = _adapter().dump_json(new_statement).decode()
    values = {
        "month": new_statement.month,
        "frozen_at": to_micros(new_statement.frozen_at),
        "frozen_by": new_statement.frozen_by,
    }
    connection.execute(insert(StatementRow).values(**values, body=body))


@cache
def _adapter() -> TypeAdapter[Statement]:
    return TypeAdapter(Statement)


_BATCH_SIZE = 5_000  # entries read at once
_MOVEMENTS = {movement.value: movement for movement in Movement}
_KINDS = {kind.value: kind for kind in MoneyKind}


def billed_entries(connection: Connection, month: BillingMonth) -> Iterator[SpentEntry]:
    """The entries that may be billed in the month, in whole or in part (`ledger.finops.focus.months`), in posting
    order, streamed. Without simulated money.
    """
    start, end = to_micros(month.start), to_micros(month.end)
    closed, closes = to_micros(month.before.closes), to_micros(month.closes)
    in_month = and_(
        LedgerEntryRow.covers_from < end, or_(LedgerEntryRow.covers_to > start, LedgerEntryRow.covers_from >= start)
    )
    is_late = and_(LedgerEntryRow.at >= closed, LedgerEntryRow.covers_from < start)
    same_attempt = and_(
        MachineTimeRow.job_id == LedgerEntryRow.job_id, MachineTimeRow.attempt == LedgerEntryRow.attempt
    )
    query = (
        select(
            *columns_of(
                LedgerEntryRow, "movement_id", "movement", "micros", "money", "at", "covers_from", "covers_to", "note"
            ),
            *TAG_COLUMNS,
            MachineTimeRow.instance_type,
            MachineTimeRow.nodes,
            LedgerEntryRow.id,
        )
        .select_from(outerjoin(LedgerEntryRow, MachineTimeRow, same_attempt))
        .where(
            LedgerEntryRow.account == Account.SPENT.value,
            LedgerEntryRow.money != MoneyKind.SANDBOX.value,
            LedgerEntryRow.at < closes,
            or_(in_month, is_late),
        )
        .order_by(LedgerEntryRow.id)
        .limit(_BATCH_SIZE)
    )
    last = 0
    while rows := connection.execute(query.where(LedgerEntryRow.id > last)).all():
        for row in rows:
            id, movement, micros, money, at, since, until, note, *tags, instance_type, nodes, _ = row
            entry = Entry(
                id,
                _MOVEMENTS[movement],
                Account.SPENT,
                Money(micros),
                _KINDS[money],
                from_micros(at),
                from_micros(since),
                from_micros(until),
                tags_of(tuple(tags)),
                note,
            )
            yield SpentEntry(entry, instance_type, nodes)
        last = rows[-1].id
