"""All open jobs at a stroke, for whoever looks after all of them again and again: what changed, and what each holds
and spent, in a number of queries that does not grow with the number of jobs. Inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from broker.core.money import Money
from broker.core.offers import MoneyKind
from broker.ledger.entries import Account, Balance, Entry, Movement, Tags
from broker.store.tables import BALANCE, ENTRY, EVENT, JOB
from broker.store.times import from_micros

_AT_ONCE = 5_000  # values that a query may have, in either database


def last_events(connection: Connection, job_ids: Sequence[str] | None) -> dict[str, int]:
    """The number of the last event of each open job, or of those of ``job_ids`` that are, oldest job first."""
    last = select(func.max(EVENT.c.seq)).where(EVENT.c.job_id == JOB.c.id).correlate(JOB).scalar_subquery()
    query = select(JOB.c.id, last).where(~JOB.c.closed).order_by(JOB.c.submitted_at, JOB.c.id)
    if job_ids is not None:
        query = query.where(JOB.c.id.in_(job_ids))
    return {row[0]: row[1] for row in connection.execute(query)}


def views(connection: Connection, job_ids: Sequence[str]) -> list[str]:
    """The views of those jobs, as they are kept."""
    found: list[str] = []
    for some in _portions(job_ids):
        found += connection.scalars(select(JOB.c.view).where(JOB.c.id.in_(some)))
    return found


def balances(connection: Connection) -> dict[str, dict[MoneyKind, Balance]]:
    """The balances of all open jobs that have money."""
    c = BALANCE.c
    query = select(c.job_id, c.money, c.available, c.held, c.spent).join(JOB, JOB.c.id == c.job_id)
    found: dict[str, dict[MoneyKind, Balance]] = {}
    for job_id, money, available, held, spent in connection.execute(query.where(~JOB.c.closed)):
        balance = Balance(available=Money(available), held=Money(held), spent=Money(spent))
        found.setdefault(job_id, {})[MoneyKind(money)] = balance
    return found


def sums(connection: Connection, job_ids: Sequence[str]) -> dict[str, list[Entry]]:
    """The entries of those jobs, added up: one for each attempt, movement, account and kind of money. It covers
    what its parts cover together."""
    c = ENTRY.c
    same = (c.job_id, c.attempt, c.movement, c.account, c.money)
    figures = (
        func.sum(c.micros),
        func.min(c.covers_from),
        func.max(c.covers_to),
        func.max(c.at),
        func.max(c.user_name),
    )
    found: dict[str, list[Entry]] = {}
    for some in _portions(job_ids):
        query = select(*same, *figures).where(c.job_id.in_(some)).group_by(*same)
        for row in connection.execute(query):
            found.setdefault(row[0], []).append(_sum(row))
    return found


def _sum(row: Sequence[Any]) -> Entry:
    job_id, attempt, movement, account, money, micros, start, end, at, user = row
    tags = Tags(job_id, user, attempt=attempt)
    return Entry(
        "sum",
        Movement(movement),
        Account(account),
        Money(int(micros)),
        MoneyKind(money),
        at=from_micros(at),
        covers_from=from_micros(start),
        covers_to=from_micros(end),
        tags=tags,
    )


def _portions(job_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(job_ids), _AT_ONCE):
        yield job_ids[first : first + _AT_ONCE]
