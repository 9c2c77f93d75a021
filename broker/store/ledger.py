"""Ledger rows: posting, and each job's balance. Every function works inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CompoundSelect,
    Connection,
    and_,
    bindparam,
    func,
    literal,
    select,
    text,
    union_all,
    update,
)
from sqlalchemy.exc import IntegrityError

from broker.core.money import Money
from broker.core.offers import CapacityType, MoneyKind
from broker.core.ports import BudgetSpec
from broker.launch.journal import HeldMoney, OpenHold
from broker.ledger.entries import Account, Balance, Entry, Movement, Tags
from broker.store import ledger_sums
from broker.store.ledger_sums import has_patterns, in_scope
from broker.store.questions import question
from broker.store.tables import BALANCE, ENTRY
from broker.store.times import from_micros, to_micros

_NAMES = BALANCE.columns.keys()
# One question instead of two, whether it is there and to make it: while one process posts, all others wait.
_OPEN = text(
    f"INSERT INTO ledger_balance ({', '.join(_NAMES)}) VALUES (:{', :'.join(_NAMES)}) ON CONFLICT DO NOTHING"  # noqa: S608  # our own names
).execution_options(preserve_rowcount=True)


def post(connection: Connection, entries: Sequence[Entry]) -> None:
    """Insert entries and keep the balances. Raises ValueError for a movement that was posted before; then the
    transaction is over."""
    if not entries:
        return
    try:
        connection.execute(ENTRY.insert(), [_to_row(entry) for entry in entries])
    except IntegrityError as error:
        ids = ", ".join(dict.fromkeys(entry.movement_id for entry in entries))
        raise ValueError(f"movement {ids} was posted before, or one of them") from error
    ledger_sums.keep(connection, entries)
    _keep_balances(connection, entries)


def _keep_balances(connection: Connection, entries: Sequence[Entry]) -> None:
    by_job: dict[tuple[str, MoneyKind], list[Entry]] = {}
    for entry in entries:
        by_job.setdefault((entry.tags.job_id, entry.money), []).append(entry)
    for group in by_job.values():
        _keep_balance(connection, group)


def _keep_balance(connection: Connection, entries: Sequence[Entry]) -> None:
    """Add entries of one job and kind of money to its kept sums."""
    first = entries[0]
    sums = dict.fromkeys(Account, 0)
    for entry in entries:
        sums[entry.account] += entry.amount.micros
    row = {
        **{account.value: micros for account, micros in sums.items()},
        "job_id": first.tags.job_id,
        "money": first.money.value,
        "holds_to": _holds_to(entries, 0, 0),
        "user_name": first.tags.user,
        "team": first.tags.team,
        "project": first.tags.project,
        "workload": first.tags.workload,
        "environment": first.tags.environment,
    }
    as_a_rule_the_first = any(entry.movement is Movement.HOLD for entry in entries)
    if as_a_rule_the_first and connection.execute(_OPEN, row).rowcount:
        return
    same = and_(BALANCE.c.job_id == first.tags.job_id, BALANCE.c.money == first.money.value)
    kept = connection.execute(select(BALANCE.c.held, BALANCE.c.holds_to).where(same)).first()
    if kept is None:
        connection.execute(_OPEN, row)
        return
    connection.execute(
        update(BALANCE)
        .where(same)
        .values(
            **{account.value: BALANCE.c[account.value] + micros for account, micros in sums.items()},
            holds_to=_holds_to(entries, kept.held, kept.holds_to),
        )
    )


def _holds_to(entries: Sequence[Entry], held: int, holds_to: int) -> int:
    """Until when the hold is meant to last: the latest end of what it was made of; 0 once nothing is held, so that a
    later hold is spread over its own time."""
    for entry in entries:
        if entry.account is not Account.HELD:
            continue
        if entry.movement in (Movement.HOLD, Movement.TOP_UP):
            holds_to = max(holds_to, to_micros(entry.covers_to))
        held += entry.amount.micros
        if not held:
            holds_to = 0
    return holds_to


def rebuild(connection: Connection) -> None:
    """Make balances and kept sums anew from the entries."""
    connection.execute(BALANCE.delete())
    ledger_sums.forget(connection)
    entries = read(connection, None)
    ledger_sums.keep(connection, entries)
    _keep_balances(connection, entries)


def read(connection: Connection, job_id: str | None) -> list[Entry]:
    """All entries, or one job's, in posting order."""
    query = select(ENTRY).order_by(ENTRY.c.id)
    if job_id is not None:
        query = query.where(ENTRY.c.job_id == job_id)
    return [_from_row(row) for row in connection.execute(query)]


def balance(connection: Connection, job_id: str) -> dict[MoneyKind, Balance]:
    """The kept sums of one job."""
    rows = connection.execute(select(BALANCE).where(BALANCE.c.job_id == job_id))
    return {
        MoneyKind(row.money): Balance(available=Money(row.available), held=Money(row.held), spent=Money(row.spent))
        for row in rows
    }


def open_holds(connection: Connection, budget: BudgetSpec) -> list[OpenHold]:
    """What jobs still hold under the budget."""
    c = BALANCE.c
    query = (
        select(c.job_id, c.money, c.held, c.holds_to)
        .where(c.held != 0, c.money.in_(budget.counts), *in_scope(connection, BALANCE.c, budget))
        .order_by(c.job_id, c.money)
    )
    return [
        OpenHold(row.job_id, MoneyKind(row.money), Money(row.held), from_micros(row.holds_to))
        for row in connection.execute(query)
    ]


def held(connection: Connection, budget: BudgetSpec, until: datetime) -> list[HeldMoney]:
    """What jobs still hold under the budget: one sum for what lasts no longer than ``until``, then each that does."""
    edge = to_micros(until)
    rows = connection.execute(question(_held, connection, budget, looks_up=has_patterns(budget)), {"edge": edge}).all()
    return [HeldMoney(Money(int(micros)), from_micros(holds_to or edge)) for holds_to, micros in rows if micros]


def _held(connection: Connection | None, budget: BudgetSpec) -> CompoundSelect[Any]:
    c, edge = BALANCE.c, bindparam("edge", type_=BigInteger)
    counted = (c.held != 0, c.money.in_(budget.counts), *in_scope(connection, c, budget))
    short = select(literal(0).label("holds_to"), func.sum(c.held)).where(*counted, c.holds_to <= edge)
    return union_all(short, select(c.holds_to, c.held).where(*counted, c.holds_to > edge))


def _to_row(entry: Entry) -> dict[str, object]:
    tags = entry.tags
    return {
        "movement_id": entry.movement_id,
        "movement": entry.movement.value,
        "account": entry.account.value,
        "micros": entry.amount.micros,
        "money": entry.money.value,
        "at": to_micros(entry.at),
        "covers_from": to_micros(entry.covers_from),
        "covers_to": to_micros(entry.covers_to),
        "job_id": tags.job_id,
        "user_name": tags.user,
        "team": tags.team,
        "project": tags.project,
        "workload": tags.workload,
        "environment": tags.environment,
        "attempt": tags.attempt,
        "provider": tags.provider,
        "region": tags.region,
        "capacity_type": tags.capacity_type.value if tags.capacity_type else None,
        "accelerator": tags.accelerator,
        "gpus": tags.gpus,
        "note": entry.note,
    }


def _from_row(row: Any) -> Entry:
    return Entry(
        movement_id=row.movement_id,
        movement=Movement(row.movement),
        account=Account(row.account),
        amount=Money(row.micros),
        money=MoneyKind(row.money),
        at=from_micros(row.at),
        covers_from=from_micros(row.covers_from),
        covers_to=from_micros(row.covers_to),
        tags=Tags(
            job_id=row.job_id,
            user=row.user_name,
            team=row.team,
            project=row.project,
            workload=row.workload,
            environment=row.environment,
            attempt=row.attempt,
            provider=row.provider,
            region=row.region,
            capacity_type=CapacityType(row.capacity_type) if row.capacity_type else None,
            accelerator=row.accelerator,
            gpus=row.gpus,
        ),
        note=row.note,
    )
