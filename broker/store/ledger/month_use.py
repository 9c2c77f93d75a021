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

from sqlalchemy import ColumnElement, Connection, TextClause, and_, case, func, select, union_all

from broker.core.events.outcomes import OUTCOMES, Cause, Next
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.finops.change import Cell, Used
from broker.ledger.entries import Account
from broker.ledger.sums import DAY, amount_before
from broker.store.engine.times import to_micros
from broker.store.schema.jobs import ENDED_BADLY
from broker.store.schema.ledger import LONG
from broker.store.tables.jobs import EVENT, IS_THERE, MACHINE_TIME, STILL_THERE
from broker.store.tables.ledger import ENTRY

_AT_ONCE = 1_000  # the maximum number of jobs per query
_MILLI = 1_000
_C, _T = ENTRY.c, MACHINE_TIME.c
_OF_ENTRY = (_C.team, _C.project, _C.provider, _C.region, _C.accelerator, _C.capacity_type)
_OF_MACHINES = (_T.team, _T.project, _T.provider, _T.region, _T.accelerator, _T.capacity_type)
_RESERVED = _C.capacity_type == CapacityType.RESERVED.value
# 1: a payment for capacity that is used later, if at all.
IN_ADVANCE = case((and_(_C.attempt.is_(None), _RESERVED, _C.money == MoneyKind.CASH.value), 1), else_=0)
# After these outcomes the job does not repeat its work: it is done, or no longer wanted.
_OVER = (Next.SUCCEED, Next.CANCEL, Next.STOP)
_NOT_REPEATED = tuple(cause for cause, outcome in OUTCOMES.items() if outcome.next in _OVER)


@dataclass(slots=True)
class UseOfTime:
    """The use in a period, in USD.

    ``cells``: the cost of use, cash and amortised money alike, without capacity paid in advance, which is
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
        lost_money = select(_C.job_id, _C.attempt, _C.micros, _C.covers_from, _C.covers_to, *_OF_ENTRY).where(
            _C.job_id.in_(some), _C.account == Account.SPENT.value, _C.covers_to >= left, _C.covers_from < right
        )
        for job_id, attempt, micros, since, until, *tags in connection.execute(lost_money):
            if lost := losses.get((job_id, attempt)):
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
    connection: Connection, columns: Sequence[ColumnElement[Any]], start: datetime, end: datetime
) -> Iterator[Paid]:
    """The spend in the half-open period (UTC), by columns of the ledger, in any order; several amounts may have the
    same tags.
    """
    left, right = to_micros(start), to_micros(end)
    spent = (_C.account == Account.SPENT.value, _C.money != MoneyKind.SANDBOX.value)
    within = (_C.covers_from >= left, _C.covers_to >= left, _C.covers_to < right)
    sums = select(*columns, _C.money, IN_ADVANCE, func.sum(_C.micros)).where(*spent, *within)
    for *tags, kind, ahead, micros in connection.execute(sums.group_by(*columns, _C.money, IN_ADVANCE)):
        yield Paid(tags, MoneyKind(kind), bool(ahead), Money(int(micros)))
    edge = select(*columns, _C.money, IN_ADVANCE, _C.micros, _C.covers_from, _C.covers_to).where(*spent)
    edges = union_all(*(edge.where(*one) for one in _at_edges(left, right)))
    for *tags, kind, ahead, micros, since, until in connection.execute(edges):
        yield Paid(tags, MoneyKind(kind), bool(ahead), Money(_part(micros, since, until, left, right)))


def _at_edges(left: int, right: int) -> Iterator[Sequence[ColumnElement[bool] | TextClause]]:
    """Conditions for the entries that an edge of the period divides, each read from an index by the end of the covered
    time: so a report of a month does not read what was spent since.
    """
    for begins, ends, edge in (
        (_C.covers_from < left, and_(_C.covers_to >= left, _C.covers_to < right), left),
        (_C.covers_from < right, _C.covers_to >= right, right),
    ):
        yield begins, ends, _C.covers_to <= edge + DAY, _C.covers_to - _C.covers_from <= DAY
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
    until = case((_T.until == STILL_THERE, now), else_=_T.until)
    last, first = case((until > right, right), else_=until), case((_T.since < left, left), else_=_T.since)
    each = case((_T.accelerator.is_(None), 1), else_=_T.count) * _T.nodes
    time = case((last > first, (last - first) // _MILLI * each), else_=0)
    query = select(*_OF_MACHINES, func.sum(time)).where(*_there(left, right)).group_by(*_OF_MACHINES)
    for *tags, milliseconds in connection.execute(query):
        found.cells.setdefault(Cell(*tags), Used()).time += int(milliseconds)


def _there(left: int, right: int) -> Sequence[Any]:
    return _T.until >= left, _T.since < right, _T.money != MoneyKind.SANDBOX.value


def _losses(connection: Connection, left: int, right: int, now: int) -> Iterator[_Loss]:
    """The attempts whose work is repeated, each with its time after the last checkpoint within [left, right)."""
    columns = (_T.job_id, _T.attempt, _T.since, _T.until, _T.count, _T.nodes, *_OF_MACHINES, EVENT.c.body)
    # An outer join, so that SQLite looks up the ends of these attempts, not the machines of all attempts that ended
    # badly.
    ended = and_(EVENT.c.job_id == _T.job_id, EVENT.c.attempt == _T.attempt, ENDED_BADLY)
    there = select(*columns).select_from(MACHINE_TIME.outerjoin(EVENT, ended)).where(*_there(left, right), IS_THERE)
    rows = [row for row in connection.execute(there) if Cause(json.loads(row.body)["cause"]) not in _NOT_REPEATED]
    saved = _last_saved(connection, sorted({row.job_id for row in rows}))
    for row in rows:
        until = now if row.until == STILL_THERE else row.until
        start, end = max(row.since, saved.get((row.job_id, row.attempt), row.since), left), min(until, right)
        if start < end:
            each = (row._mapping["count"] if row.accelerator is not None else 1) * row.nodes
            cell = Cell(row.team, row.project, row.provider, row.region, row.accelerator, row.capacity_type)
            yield _Loss(row.job_id, row.attempt, start, end, cell, each)


def _last_saved(connection: Connection, job_ids: Sequence[str]) -> dict[tuple[str, int], int]:
    """The time of the last reported checkpoint of each attempt."""
    found: dict[tuple[str, int], int] = {}
    for some in _at_once(job_ids):
        query = select(EVENT.c.job_id, EVENT.c.attempt, func.max(EVENT.c.at)).where(
            EVENT.c.job_id.in_(some), EVENT.c.kind == "checkpoint_saved"
        )
        for job_id, attempt, at in connection.execute(query.group_by(EVENT.c.job_id, EVENT.c.attempt)):
            found[job_id, attempt] = at
    return found


def _at_once(job_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(job_ids), _AT_ONCE):
        yield job_ids[first : first + _AT_ONCE]
