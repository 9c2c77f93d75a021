"""The spend and the machine time of a period, by `broker.ledger.finops.change.Cell`, summed by the database.

Inside the caller's transaction.

Entries that lie within the period are summed by the database; those across its edges count in part. The part that is
lost work is computed entry by entry, only for attempts that ended badly.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Any

from sqlalchemy import ColumnElement, Connection, SQLColumnExpression, TextClause, and_, case, func, select, union_all
from sqlalchemy.orm import outerjoin

from broker.core.events.outcomes import OUTCOMES, Cause, Next
from broker.core.market.accelerators import card_share
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import DAY, Account, amount_within
from broker.ledger.finops.change import Cell, CellUse
from broker.store.engine.fields import to_micros
from broker.store.engine.statements import for_jobs, in_jobs
from broker.store.ledger.machine_time import time_within
from broker.store.schema.jobs import HAS_EVENT, IS_FAILED_END, STILL_RUNNING, AttemptEventRow, MachineTimeRow
from broker.store.schema.ledger import LONG_ENTRIES, LedgerEntryRow
from broker.store.schema.row import columns_of

_MILLI = 1_000

_OF_ENTRY = columns_of(LedgerEntryRow, "team", "project", "provider", "region", "accelerator", "capacity_type")
_OF_MACHINES = columns_of(MachineTimeRow, "team", "project", "provider", "region", "accelerator", "capacity_type")
_RESERVED = LedgerEntryRow.capacity_type == CapacityType.RESERVED.value
# 1: a payment for capacity that is used later, if at all.
IN_ADVANCE = case(
    (and_(LedgerEntryRow.attempt.is_(None), _RESERVED, LedgerEntryRow.money == MoneyKind.CASH.value), 1), else_=0
)
# After these outcomes the job does not repeat its work: it is done, no longer wanted, or another attempt does it.
_OVER = (Next.SUCCEED, Next.CANCEL)
_NOT_REPEATED = (*(cause for cause, outcome in OUTCOMES.items() if outcome.next in _OVER), Cause.NOT_NEEDED)


@dataclass(slots=True)
class PeriodUse:
    """The use in a period, in USD.

    ``cells``: the cost of use, cash and amortized money alike, without capacity paid in advance, which is
    ``bought_in_advance``.
    ``cash``: the amount to be paid, including ``bought_in_advance``; ``amortised``: the use of capacity paid earlier.
    """

    cells: dict[Cell, CellUse] = field(default_factory=dict)
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
    machines: Fraction


def period_use(connection: Connection, start: datetime, end: datetime, now: datetime) -> PeriodUse:
    """The spend and machine time of the half-open period (UTC), without simulated money and machines.

    Machines that still exist count up to ``now``.
    """
    left, right, now_micros = to_micros(start), to_micros(end), to_micros(now)
    use = PeriodUse()
    for payment in payments_in(connection, _OF_ENTRY, start, end):
        _add(use, payment)
    _add_machines(connection, use, left, right, now_micros)
    losses = {(loss.job_id, loss.attempt): loss for loss in _losses(connection, left, right, now_micros)}
    for loss in losses.values():
        wasted = int((loss.end - loss.start) // _MILLI * loss.machines)
        use.cells.setdefault(loss.cell, CellUse()).wasted_time += wasted
    lost_money = select(
        *columns_of(LedgerEntryRow, "job_id", "attempt", "micros", "covers_from", "covers_to"),
        *_OF_ENTRY,
    ).where(
        in_jobs(LedgerEntryRow.job_id),
        LedgerEntryRow.account == Account.SPENT.value,
        LedgerEntryRow.covers_to >= left,
        LedgerEntryRow.covers_from < right,
    )
    jobs = sorted({job_id for job_id, _ in losses})
    for job_id, attempt, micros, since, until, *tags in for_jobs(connection, lost_money, jobs):
        if attempt is not None and (attempt_loss := losses.get((job_id, attempt))):
            part = amount_within(micros, since, until, attempt_loss.start, attempt_loss.end)
            use.cells.setdefault(Cell(*tags), CellUse()).wasted += Money(part)
    return use


@dataclass(frozen=True, slots=True)
class Payment:
    """An amount (USD) with its tags. ``in_advance``: for capacity that is used later, if at all."""

    tags: Sequence[str | None]
    kind: MoneyKind
    in_advance: bool
    amount: Money


def payments_in(
    connection: Connection, columns: Sequence[SQLColumnExpression[Any]], start: datetime, end: datetime
) -> Iterator[Payment]:
    """The spend in the half-open period (UTC), by columns of the ledger, in any order; several amounts may have the
    same tags.
    """
    left, right = to_micros(start), to_micros(end)
    spent = (LedgerEntryRow.account == Account.SPENT.value, LedgerEntryRow.money != MoneyKind.SANDBOX.value)
    within = (LedgerEntryRow.covers_from >= left, LedgerEntryRow.covers_to >= left, LedgerEntryRow.covers_to < right)
    sums = select(*columns, LedgerEntryRow.money, IN_ADVANCE, func.sum(LedgerEntryRow.micros)).where(*spent, *within)
    for *tags, kind, in_advance, micros in connection.execute(
        sums.group_by(*columns, LedgerEntryRow.money, IN_ADVANCE)
    ):
        yield Payment(tags, MoneyKind(kind), bool(in_advance), Money(int(micros)))
    edge = select(
        *columns,
        LedgerEntryRow.money,
        IN_ADVANCE,
        LedgerEntryRow.micros,
        LedgerEntryRow.covers_from,
        LedgerEntryRow.covers_to,
    ).where(*spent)
    edges = union_all(*(edge.where(*conditions) for conditions in _at_edges(left, right)))
    for *tags, kind, in_advance, micros, since, until in connection.execute(edges):
        yield Payment(tags, MoneyKind(kind), bool(in_advance), Money(amount_within(micros, since, until, left, right)))


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
        yield begins, ends, LONG_ENTRIES


def _add(use: PeriodUse, payment: Payment) -> None:
    if payment.kind is MoneyKind.AMORTISED:
        use.amortised += payment.amount
    else:
        use.cash += payment.amount
    if payment.in_advance:
        use.bought_in_advance += payment.amount
    else:
        use.cells.setdefault(Cell(*payment.tags), CellUse()).spent += payment.amount


def _add_machines(connection: Connection, use: PeriodUse, left: int, right: int, now: int) -> None:
    machines = case((MachineTimeRow.accelerator.is_(None), 1), else_=MachineTimeRow.count) * MachineTimeRow.nodes
    time = time_within(left, right, now) // _MILLI * machines
    query = select(*_OF_MACHINES, func.sum(time)).where(*_existing(left, right)).group_by(*_OF_MACHINES)
    for *tags, milliseconds in connection.execute(query):
        cell = Cell(*tags)
        use.cells.setdefault(cell, CellUse()).time += int(int(milliseconds) * card_share(cell.accelerator)[1])


def _existing(left: int, right: int) -> Sequence[Any]:
    return MachineTimeRow.until >= left, MachineTimeRow.since < right, MachineTimeRow.money != MoneyKind.SANDBOX.value


def _losses(connection: Connection, left: int, right: int, now: int) -> Iterator[_Loss]:
    """The attempts whose work is repeated, each with its time after the last checkpoint within [left, right)."""
    columns = (
        *columns_of(MachineTimeRow, "job_id", "attempt", "since", "until", "count", "nodes"),
        *_OF_MACHINES,
        AttemptEventRow.body,
    )
    # An outer join, so that SQLite looks up the ends of these attempts, not the machines of all attempts that ended
    # badly.
    is_end = and_(
        AttemptEventRow.job_id == MachineTimeRow.job_id,
        AttemptEventRow.attempt == MachineTimeRow.attempt,
        IS_FAILED_END,
    )
    statement = (
        select(*columns)
        .select_from(outerjoin(MachineTimeRow, AttemptEventRow, is_end))
        .where(*_existing(left, right), HAS_EVENT)
    )
    rows = [row for row in connection.execute(statement) if Cause(json.loads(row.body)["cause"]) not in _NOT_REPEATED]
    checkpoints = _last_checkpoints(connection, sorted({row.job_id for row in rows}))
    for row in rows:
        until = now if row.until == STILL_RUNNING else row.until
        start, end = max(row.since, checkpoints.get((row.job_id, row.attempt), row.since), left), min(until, right)
        if start < end:
            machines = (row._mapping["count"] if row.accelerator is not None else 1) * row.nodes
            cell = Cell(row.team, row.project, row.provider, row.region, row.accelerator, row.capacity_type)
            cards = machines * card_share(row.accelerator)[1]
            yield _Loss(row.job_id, row.attempt, start, end, cell, cards)


def _last_checkpoints(connection: Connection, job_ids: Sequence[str]) -> dict[tuple[str, int | None], int]:
    """The time of the last reported checkpoint of each attempt."""
    query = select(AttemptEventRow.job_id, AttemptEventRow.attempt, func.max(AttemptEventRow.at)).where(
        in_jobs(AttemptEventRow.job_id), AttemptEventRow.kind == "checkpoint_saved"
    )
    by_attempt = query.group_by(AttemptEventRow.job_id, AttemptEventRow.attempt)
    return {(job_id, attempt): at for job_id, attempt, at in for_jobs(connection, by_attempt, job_ids)}
