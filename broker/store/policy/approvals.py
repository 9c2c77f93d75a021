"""Standing grants with their use, and approval events of jobs.

Other approvals are events of their jobs. Revoked grants are kept.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    exists,
    func,
    insert,
    literal,
    literal_column,
    select,
    update,
)

from broker.core.errors import UnknownName
from broker.core.market.offers import MoneyKind
from broker.core.policy.approvals import StandingGrant
from broker.core.values.money import Money
from broker.ledger.entries import Account, Entry, Movement
from broker.store.engine.fields import from_micros, to_micros, value_of
from broker.store.engine.statements import for_jobs, in_jobs
from broker.store.schema.jobs import UNCLOSED, VIEW_COLUMNS, AttemptEventRow, JobRow
from broker.store.schema.ledger import LedgerBalanceRow
from broker.store.schema.policy import OPEN_USE, StandingGrantRow, StandingUseRow

KINDS = ("approval_asked", "approval_given", "approval_refused")
# Literals, so that the database can use its partial index of these events.
_ABOUT_APPROVAL = AttemptEventRow.kind.in_([literal_column(f"'{kind}'") for kind in KINDS])
# The spend and holds of jobs under a grant, without prepaid capacity.
_USED = func.coalesce(func.sum(LedgerBalanceRow.held + LedgerBalanceRow.spent), 0)
_COUNTS = LedgerBalanceRow.money != MoneyKind.AMORTISED.value
_AFTER_CLOSING = (Movement.ADJUST, Movement.RELEASE)
_IN_USE = (Account.HELD, Account.SPENT)


def standing_grants(connection: Connection, at: datetime | None = None) -> list[StandingGrant]:
    """Every standing grant, including revoked ones, or those valid ``at`` a time (UTC); oldest first, each with the
    spend and holds of the jobs that use it, and with what the tasks of open arrays may still cost."""
    rows = connection.execute(select(StandingGrantRow).order_by(StandingGrantRow.number))
    grants = [grant for grant in map(_grant, rows) if at is None or grant.active(at)]
    if not grants:
        return []

    used = (
        select(StandingUseRow.number, _USED.label("used"))
        .join_from(StandingUseRow, LedgerBalanceRow, LedgerBalanceRow.job_id == StandingUseRow.job_id)
        .where(_COUNTS, OPEN_USE)
    )
    of_grants = used.where(StandingUseRow.number.in_([grant.number for grant in grants])).group_by(
        StandingUseRow.number
    )
    by_open_jobs = {row.number: Money(int(row.used)) for row in connection.execute(of_grants)}
    for (number, _), rest in _unstarted_shares(connection).items():
        by_open_jobs[number] = by_open_jobs.get(number, Money.ZERO) + rest
    return [replace(grant, used=grant.used + by_open_jobs.get(grant.number, Money.ZERO)) for grant in grants]


def _unstarted_shares(connection: Connection) -> dict[tuple[int, str], Money]:
    """By grant and open array, the part of the array's total that its tasks neither hold nor have spent."""
    tasks = (
        select(_USED)
        .join_from(JobRow, LedgerBalanceRow, LedgerBalanceRow.job_id == JobRow.id)
        .where(JobRow.array_id == StandingUseRow.job_id, _COUNTS)
    )
    query = select(StandingUseRow.number, StandingUseRow.job_id, StandingUseRow.total, tasks.scalar_subquery())
    rows = connection.execute(query.where(OPEN_USE, StandingUseRow.total > 0))
    return {(number, array): Money(max(total - int(used), 0)) for number, array, total, used in rows}


def keep(connection: Connection, entries: Iterable[Entry]) -> None:
    """Add movements of closed jobs, such as a provider's later charge, to the grants that the jobs used."""
    moved: dict[str, int] = defaultdict(int)
    for entry in entries:
        if entry.movement in _AFTER_CLOSING and entry.account in _IN_USE and entry.money is not MoneyKind.AMORTISED:
            moved[entry.tags.job_id] += entry.amount.micros
    changed = {job_id: micros for job_id, micros in moved.items() if micros}
    for job_id, numbers in _grants_used(connection, list(changed), StandingUseRow.closed).items():
        _add(connection, numbers, literal(changed[job_id], BigInteger))


def close(connection: Connection, job_ids: Sequence[str]) -> None:
    """Close jobs: add their spend to the grants that they used, so that their balances are not read again."""
    for job_id, numbers in _grants_used(connection, job_ids, OPEN_USE).items():
        spent = select(_USED).where(LedgerBalanceRow.job_id == job_id, _COUNTS).scalar_subquery()
        _add(connection, numbers, spent)
        connection.execute(update(StandingUseRow).where(StandingUseRow.job_id == job_id).values(closed=True))


def _grants_used(connection: Connection, job_ids: Sequence[str], condition: Any) -> dict[str, list[int]]:
    """The numbers of the grants that these jobs used, by job, restricted to those whose use is ``condition``."""
    result: dict[str, list[int]] = defaultdict(list)
    query = select(StandingUseRow.job_id, StandingUseRow.number).where(in_jobs(StandingUseRow.job_id), condition)
    for job_id, number in for_jobs(connection, query, job_ids):
        result[job_id].append(number)
    return result


def rebuild(connection: Connection) -> None:
    """Recompute the use by closed jobs."""
    connection.execute(update(StandingGrantRow).values(closed_use=0))
    connection.execute(update(StandingUseRow).values(closed=False))
    used = select(StandingUseRow.job_id).distinct().join(JobRow, JobRow.id == StandingUseRow.job_id)
    close(connection, list(connection.scalars(used.where(JobRow.closed))))


def _add(connection: Connection, numbers: Any, micros: ColumnElement[int]) -> None:
    connection.execute(
        update(StandingGrantRow)
        .where(StandingGrantRow.number.in_(numbers))
        .values(closed_use=StandingGrantRow.closed_use + micros)
    )


def share(connection: Connection, number: int, job_id: str | None, array: str | None = None) -> Money:
    """The share of a standing grant's use that a job may have: its own, of an array that of its tasks, and what the
    tasks of its ``array`` may still cost; zero if it does not use the grant."""
    uses = select(_USED).join_from(StandingUseRow, LedgerBalanceRow, LedgerBalanceRow.job_id == StandingUseRow.job_id)
    uses = uses.where(_COUNTS, StandingUseRow.number == number)
    in_share = uses.where(StandingUseRow.job_id == job_id)
    tasks = uses.join(JobRow, JobRow.id == StandingUseRow.job_id).where(JobRow.array_id == job_id)
    used = sum(int(connection.scalar(query) or 0) for query in (in_share, tasks)) if job_id else 0
    return Money(used) + _unstarted_shares(connection).get((number, array or job_id or ""), Money.ZERO)


def use(connection: Connection, number: int, job_id: str, total: Money = Money.ZERO) -> None:
    """Count the job's holds and spend against a standing grant from now on; of an array, all ``total`` of its tasks
    while it is open. Idempotent."""
    same_use = StandingUseRow.number == number, StandingUseRow.job_id == job_id
    if connection.scalar(select(StandingUseRow.number).where(*same_use)) is None:
        connection.execute(insert(StandingUseRow).values(number=number, job_id=job_id, total=total.micros))
    elif total:
        connection.execute(update(StandingUseRow).where(*same_use).values(total=total.micros))


def give(connection: Connection, grant: StandingGrant) -> StandingGrant:
    """Store a standing grant under the next number; returns it with that number. Numbers are never reused."""
    number = (connection.scalar(select(func.max(StandingGrantRow.number))) or 0) + 1
    whom = {"rules": grant.rules, "users": grant.users, "teams": grant.teams, "projects": grant.projects}
    at, until = to_micros(grant.at), to_micros(grant.until)
    connection.execute(
        insert(StandingGrantRow).values(
            number=number,
            granted_by=grant.by,
            at=at,
            until=until,
            total=grant.total.micros,
            whom=json.dumps(whom, sort_keys=True),
            note=grant.note,
            revoked_at=None,
            revoked_by="",
        )
    )
    return replace(grant, number=number, at=from_micros(at), until=from_micros(until))


def revoke(connection: Connection, number: int, *, by: str, at: datetime) -> StandingGrant:
    """Revoke a grant. Idempotent. Raises `UnknownName` if the number does not exist."""
    by_number = {grant.number: grant for grant in standing_grants(connection)}
    if number not in by_number:
        raise UnknownName("standing grant", str(number), [str(key) for key in by_number])
    if by_number[number].revoked_at is not None:
        return by_number[number]

    change = update(StandingGrantRow).where(StandingGrantRow.number == number)
    connection.execute(change.values(revoked_at=to_micros(at), revoked_by=by))
    return replace(by_number[number], revoked_at=from_micros(to_micros(at)), revoked_by=by)


def jobs_with_approvals(connection: Connection, limit: int) -> Sequence[str]:
    """The ids of jobs with approval requests or answers, newest request or answer first."""
    newest = (
        select(AttemptEventRow.job_id)
        .where(_ABOUT_APPROVAL)
        .order_by(AttemptEventRow.at.desc(), AttemptEventRow.job_id)
    )
    event_limit = limit
    while True:
        # A job may have several events: read more, newest first, until there are enough jobs.
        event_limit *= 2
        ids = list(connection.scalars(newest.limit(event_limit)))
        jobs = list(dict.fromkeys(ids))
        if len(jobs) >= limit or len(ids) < event_limit:
            return jobs[:limit]


def approval_events(connection: Connection, job_ids: Sequence[str]) -> Sequence[Any]:
    """The rows of the approval events of those jobs, in the order of each stream."""
    query = (
        select(AttemptEventRow)
        .where(AttemptEventRow.job_id.in_(job_ids), _ABOUT_APPROVAL)
        .order_by(AttemptEventRow.job_id, AttemptEventRow.seq)
    )
    return connection.execute(query).all()


def with_approval_events(connection: Connection) -> Sequence[Any]:
    """The rows of open jobs with approval events, for `broker.store.jobs.job_rows`, oldest first."""
    has_approval_event = exists().where(AttemptEventRow.job_id == JobRow.id, _ABOUT_APPROVAL)
    query = select(*VIEW_COLUMNS).where(UNCLOSED, has_approval_event).order_by(JobRow.submitted_at, JobRow.id)
    return connection.execute(query).all()


def _grant(row: Any) -> StandingGrant:
    whom = {key: tuple(names) for key, names in json.loads(row.whom).items()}
    return value_of(StandingGrant, row, by=row.granted_by, used=Money(row.closed_use), **whom)
