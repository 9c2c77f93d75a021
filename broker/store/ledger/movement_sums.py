"""Sums of each job's movements, updated in the transaction of the entries, so that the entries of a long job need not
be read. Every function works inside the caller's transaction."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, select

from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import ROUTES, Entry, Movement, Sum, Tags
from broker.store.engine.fields import from_micros, to_micros
from broker.store.engine.statements import for_jobs, in_jobs, insert_rows
from broker.store.schema.ledger import MovementSumRow

_NO_ATTEMPT = 0  # a key column cannot be NULL
_KEY = ("job_id", "attempt", "money", "movement")
_OF_JOBS = (
    select(MovementSumRow)
    .where(in_jobs(MovementSumRow.job_id))
    .order_by(*(getattr(MovementSumRow, name) for name in _KEY))
)
# SQLite and PostgreSQL have different functions for the smaller and the larger of two values; both support CASE.
_EARLIER = "{0} = CASE WHEN excluded.{0} < movement_sum.{0} THEN excluded.{0} ELSE movement_sum.{0} END"
_LATER = "{0} = CASE WHEN excluded.{0} > movement_sum.{0} THEN excluded.{0} ELSE movement_sum.{0} END"
_ADD = (
    f"ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET micros = movement_sum.micros + excluded.micros,"
    " movements = movement_sum.movements + excluded.movements,"
    f" {_EARLIER.format('covers_from')}, {_LATER.format('covers_to')}, {_LATER.format('at')}"
)


def keep(connection: Connection, entries: Iterable[Entry]) -> None:
    """Add entries to the sums. Of the two entries of a movement, the one on the receiving account is added."""
    rows: dict[tuple[str, int, str, str], dict[str, Any]] = {}
    for entry in entries:
        if entry.account is not ROUTES[entry.movement][1]:
            continue
        start, end, at = map(to_micros, (entry.covers_from, entry.covers_to, entry.at))
        key = (entry.tags.job_id, entry.tags.attempt or _NO_ATTEMPT, entry.money.value, entry.movement.value)
        row = rows.get(key)
        if row is None:
            job_id, attempt, money, movement = key
            rows[key] = {
                "job_id": job_id,
                "attempt": attempt,
                "money": money,
                "movement": movement,
                "micros": entry.amount.micros,
                "movements": 1,
                "covers_from": start,
                "covers_to": end,
                "at": at,
                "user_name": entry.tags.user,
            }
            continue
        row["micros"] += entry.amount.micros
        row["movements"] += 1
        row |= {
            "covers_from": min(row["covers_from"], start),
            "covers_to": max(row["covers_to"], end),
            "at": max(row["at"], at),
        }
    if rows:
        insert_rows(connection, MovementSumRow, [rows[key] for key in sorted(rows)], _ADD)


def read(connection: Connection, job_ids: Sequence[str]) -> dict[str, list[Sum]]:
    """The entries of those jobs, summed by attempt, movement, account and kind of money: two sums per row, one for each
    account. Without jobs that have no entries."""
    sums: dict[str, list[Sum]] = {}
    for row in for_jobs(connection, _OF_JOBS, job_ids):
        sums.setdefault(row.job_id, []).extend(_account_sums(row))
    return sums


def _account_sums(row: Any) -> Iterator[Sum]:
    movement = Movement(row.movement)
    source, target = ROUTES[movement]
    for account, micros in ((source, -row.micros), (target, row.micros)):
        yield Sum(
            movement_id="sum",
            movement=movement,
            account=account,
            amount=Money(micros),
            money=MoneyKind(row.money),
            at=from_micros(row.at),
            covers_from=from_micros(row.covers_from),
            covers_to=from_micros(row.covers_to),
            tags=Tags(row.job_id, row.user_name, attempt=row.attempt or None),
            count=row.movements,
        )
