"""The spend and the machine time of a period, by `broker.finops.change.Cell`, summed by the database.

Inside the caller's transaction.

Entries that lie within the period are summed by the database; those across its edges count in part. The part that is
lost work is computed entry by entry, only for attempts that ended badly.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, SQLColumnExpression, TextClause, and_, case, func, select, union_all
from sqlalchemy.orm import outerjoin

from broker.core.events.outcomes import OUTCOMES, Cause, Next
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.finops.change import Cell, Used
from broker.ledger.entries import Account
from broker.ledger.sums import DAY, amount_before
from broker.store.engine.times import to_micros
from broker.store.schema.jobs import ENDED_BADLY, IS_THERE, STILL_THERE, AttemptEventRow, MachineTimeRow
from broker.store.schema.ledger import LONG, LedgerEntryRow

_AT_ONCE = 1_000  # the maximum number of jobs per query
_MILLI = 1_000

_OF_ENTRY = (
    LedgerEntryRow.team,
    LedgerEntryRow.project,
    LedgerEntryRow.provider,
    LedgerEntryRow.region,
    LedgerEntryRow.accelerator,
    LedgerEntryRow.capacity_type,
)
_OF_MACHINES = (
    MachineTimeRow.team,
    MachineTimeRow.project,
    MachineTimeRow.provider,
    MachineTimeRow.region,
    MachineTimeRow.accelerator,
    MachineTimeRow.capacity_type,
)
_RESERVED = LedgerEntryRow.capacity_type == CapacityType.RESERVED.value
# 1: a payment for capacity that is used later, if at all.
IN_ADVANCE = case(
    (and_(LedgerEntryRow.attempt.is_(None), _RESERVED, LedgerEntryRow.money == MoneyKind.CASH.value), 1), else_=0
)
# After these outcomes the job does not repeat its work: it is done, or no longer wanted.
_OVER = (Next.SUCCEED, Next.CANCEL)
_NOT_REPEATED = tuple(cause for cause, outcome in OUTCOMES.items() if outcome.next in _OVER)


@dataclass(slots=True)
class UseOfTime:
    """The use in a period, in USD.

    ``cells``: the cost of use, cash and amortized money alike, without capacity paid in advance, which is
    ``bought_in_advance``.
    ``cash``: the amount to be paid, including ``bought_in_advance``; ``amortised``: the use of capacity paid earlier.
    """

    cells: dict[Cell, Used] = field(default_factory=dict)
    cash: Money = Money.ZERO
    amortised: Money = Money.ZERO
    bought_in_advance: Money = Money.ZERO


@dataclass(frozen=True, slots=True)
class _Loss:
    """The time (microseconds) of an attempt that was lost."""

    job_id: str
    attempt: int
    start: int
    end: int
    cell: Cell
    machines: int


def used_in(connection: Connection, start: datetime, end: datetime, now: datetime) -> UseOfTime:
    """The spend and machine time of the half-open period (UTC), without simulated money and machines.

    Machines that still exist count up to ``now``.
    """
    left, right, seen = to_micros(start), to_micros(end), to_micros(now)
    found = UseOfTime()
    for paid in paid_in(connection, _OF_ENTRY, start, end):
        _add(found, paid)
    _add_machines(connection, found, left, right, seen)
    losses = {(loss.job_id, loss.attempt): loss for loss in _losses(connection, left, right, seen)}
    for loss in losses.values():
        found.cells.setdefault(loss.cell, Used()).wasted_time += (loss.end - loss.start) // _MILLI * loss.machines
    for some in _at_once(sorted({job_id for job_id, _ in losses})):
        lost_money = select(
            LedgerEntryRow.job_id,
            LedgerEntryRow.attempt,
            LedgerEntryRow.micros,
            LedgerEntryRow.covers_from,
            LedgerEntryRow.covers_to,
            *_OF_ENTRY,
        ).where(
            LedgerEntryRow.job_id.in_(some),
            LedgerEntryRow.account == Account.SPENT.value,
            LedgerEntryRow.covers_to >= left,
            LedgerEntryRow.covers_from < right,
        )
        for job_id, attempt, micros, since, until, *tags in connection.execute(lost_money):
            if attempt is not None and (lost := losses.get((job_id, attempt))):
                part = _part(micros, since, until, lost.start, lost.end)
                found.cells.setdefault(Cell(*tags), Used()).wasted += Money(part)
    return found


@dataclass(frozen=True, slots=True)
class Paid:
    """An amount (USD) with its tags. ``in_advance``: for capacity that is used later, if at all."""

    tags: Sequence[str | None]
    kind: MoneyKind
    in_advance: bool
    amount: Money


def paid_in(
    connection: Connection, columns: Sequence[SQLColumnExpression[Any]], start: datetime, end: datetime
) -> Iterator[Paid]:
    """The spend in the half-open period (UTC), by columns of the ledger, in any order; several amounts may have the
    same tags.
    """
    left, right = to_micros(start), to_micros(end)
    spent = (LedgerEntryRow.account == Account.SPENT.value, LedgerEntryRow.money != MoneyKind.SANDBOX.value)
    within = (LedgerEntryRow.covers_from >= left, LedgerEntryRow.covers_to >= left, LedgerEntryRow.covers_to < right)
    sums = select(*columns, LedgerEntryRow.money, IN_ADVANCE, func.sum(LedgerEntryRow.micros)).where(*spent, *within)
    for *tags, kind, ahead, micros in connection.execute(sums.group_by(*columns, LedgerEntryRow.money, IN_ADVANCE)):
        yield Paid(tags, MoneyKind(kind), bool(ahead), Money(int(micros)))
    edge = select(
        *columns,
        LedgerEntryRow.money,
        IN_ADVANCE,
        LedgerEntryRow.micros,
        LedgerEntryRow.covers_from,
        LedgerEntryRow.covers_to,
    ).where(*spent)
    edges = union_all(*(edge.where(*one) for one in _at_edges(left, right)))
    for *tags, kind, ahead, micros, since, until in connection.execute(edges):
        yield Paid(tags, MoneyKind(kind), bool(ahead), Money(_part(micros, since, until, left, right)))


def _at_edges(left: int, right: int) -> Iterator[Sequence[ColumnElement[bool] | TextClause]]:
    """Conditions for the entries that an edge of the period divides, each read from an index by the end of the covered
    time: so a report of a month does not read what was spent since.
    """
    for begins, ends, edge in (
        (
            LedgerEntryRow.covers_from < left,
            and_(LedgerEntryRow.covers_to >= left, LedgerEntryRow.covers_to < right),
            left,
        ),
        (LedgerEntryRow.covers_from < right, LedgerEntryRow.covers_to >= right, right),
    ):
        yield (
            begins,
            ends,
            LedgerEntryRow.covers_to <= edge + DAY,
            LedgerEntryRow.covers_to - LedgerEntryRow.covers_from <= DAY,
        )
        yield begins, ends, LONG


def _add(found: UseOfTime, paid: Paid) -> None:
    if paid.kind is MoneyKind.AMORTISED:
        found.amortised += paid.amount
    else:
        found.cash += paid.amount
    if paid.in_advance:
        found.bought_in_advance += paid.amount
    else:
        found.cells.setdefault(Cell(*paid.tags), Used()).spent += paid.amount


def _part(micros: int, since: int, until: int, left: int, right: int) -> int:
    return amount_before(micros, since, until, right) - amount_before(micros, since, until, left)


def _add_machines(connection: Connection, found: UseOfTime, left: int, right: int, now: int) -> None:
    until = case((MachineTimeRow.until == STILL_THERE, now), else_=MachineTimeRow.until)
    last, first = (
        case((until > right, right), else_=until),
        case((MachineTimeRow.since < left, left), else_=MachineTimeRow.since),
    )
    each = case((MachineTimeRow.accelerator.is_(None), 1), else_=MachineTimeRow.count) * MachineTimeRow.nodes
    time = case((last > first, (last - first) // _MILLI * each), else_=0)
    query = select(*_OF_MACHINES, func.sum(time)).where(*_there(left, right)).group_by(*_OF_MACHINES)
    for *tags, milliseconds in connection.execute(query):
        found.cells.setdefault(Cell(*tags), Used()).time += int(milliseconds)


def _there(left: int, right: int) -> Sequence[Any]:
    return MachineTimeRow.until >= left, MachineTimeRow.since < right, MachineTimeRow.money != MoneyKind.SANDBOX.value


def _losses(connection: Connection, left: int, right: int, now: int) -> Iterator[_Loss]:
    """The attempts whose work is repeated, each with its time after the last checkpoint within [left, right)."""
    columns = (
        MachineTimeRow.job_id,
        MachineTimeRow.attempt,
        MachineTimeRow.since,
        MachineTimeRow.until,
        MachineTimeRow.count,
        MachineTimeRow.nodes,
        *_OF_MACHINES,
        AttemptEventRow.body,
    )
    # An outer join, so that SQLite looks up the ends of these attempts, not the machines of all attempts that ended
    # badly.
    ended = and_(
        AttemptEventRow.job_id == MachineTimeRow.job_id, AttemptEventRow.attempt == MachineTimeRow.attempt, ENDED_BADLY
    )
    there = (
        select(*columns)
        .select_from(outerjoin(MachineTimeRow, AttemptEventRow, ended))
        .where(*_there(left, right), IS_THERE)
    )
    rows = [row for row in connection.execute(there) if Cause(json.loads(row.body)["cause"]) not in _NOT_REPEATED]
    saved = _last_saved(connection, sorted({row.job_id for row in rows}))
    for row in rows:
        until = now if row.until == STILL_THERE else row.until
        start, end = max(row.since, saved.get((row.job_id, row.attempt), row.since), left), min(until, right)
        if start < end:
            each = (row._mapping["count"] if row.accelerator is not None else 1) * row.nodes
            cell = Cell(row.team, row.project, row.provider, row.region, row.accelerator, row.capacity_type)
            yield _Loss(row.job_id, row.attempt, start, end, cell, each)


def _last_saved(connection: Connection, job_ids: Sequence[str]) -> dict[tuple[str, int | None], int]:
    """The time of the last reported checkpoint of each attempt."""
    found: dict[tuple[str, int | None], int] = {}
    for some in _at_once(job_ids):
        query = select(AttemptEventRow.job_id, AttemptEventRow.attempt, func.max(AttemptEventRow.at)).where(
            AttemptEventRow.job_id.in_(some), AttemptEventRow.kind == "checkpoint_saved"
        )
        for job_id, attempt, at in connection.execute(query.group_by(AttemptEventRow.job_id, AttemptEventRow.attempt)):
            found[job_id, attempt] = at
    return found


def _at_once(job_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(job_ids), _AT_ONCE):
        yield job_ids[first : first + _AT_ONCE]
