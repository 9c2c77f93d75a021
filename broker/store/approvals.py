"""Standing grants and what is used of them, and what was asked and answered. One-time approvals are events of their
jobs. A grant that is taken back is kept, not deleted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, literal_column, select

from broker.core.approvals import StandingGrant
from broker.core.errors import UnknownName
from broker.core.money import Money
from broker.core.offers import MoneyKind
from broker.store.tables import BALANCE, EVENT, JOB, STANDING_GRANT, STANDING_USE
from broker.store.times import from_micros, to_micros

KINDS = ("approval_asked", "approval_given", "approval_refused")
# Written out, so that the database sees that its index of these events will do.
_ABOUT_APPROVAL = EVENT.c.kind.in_([literal_column(f"'{kind}'") for kind in KINDS])
# What jobs under a grant have spent and hold; what was paid before does not count.
_USED = func.coalesce(func.sum(BALANCE.c.held + BALANCE.c.spent), 0)
_COUNTS = BALANCE.c.money != MoneyKind.AMORTISED.value


def standing(connection: Connection) -> list[StandingGrant]:
    """Every standing grant, those taken back included, oldest first."""
    c = STANDING_USE.c
    used = select(c.number, _USED.label("used")).join(BALANCE, BALANCE.c.job_id == c.job_id).where(_COUNTS)
    sums = {row.number: Money(int(row.used)) for row in connection.execute(used.group_by(c.number))}
    rows = connection.execute(select(STANDING_GRANT).order_by(STANDING_GRANT.c.number))
    return [replace(_grant(row), used=sums.get(row.number, Money.ZERO)) for row in rows]


def share(connection: Connection, number: int, job_id: str) -> Money:
    """What of a grant's use is this job's."""
    c = STANDING_USE.c
    mine = select(_USED).join(BALANCE, BALANCE.c.job_id == c.job_id)
    found = connection.scalar(mine.where(_COUNTS, c.number == number, c.job_id == job_id))
    return Money(int(found or 0))


def use(connection: Connection, number: int, job_id: str) -> None:
    """Count the job under the grant. Twice is once."""
    c = STANDING_USE.c
    known = select(c.number).where(c.number == number, c.job_id == job_id)
    if connection.scalar(known) is None:
        connection.execute(STANDING_USE.insert().values(number=number, job_id=job_id))


def give(connection: Connection, grant: StandingGrant) -> StandingGrant:
    """Put it on record under the next number, which is never used again."""
    number = (connection.scalar(select(func.max(STANDING_GRANT.c.number))) or 0) + 1
    whom = {"rules": grant.rules, "users": grant.users, "teams": grant.teams, "projects": grant.projects}
    at, until = to_micros(grant.at), to_micros(grant.until)
    connection.execute(
        STANDING_GRANT.insert().values(
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
    """Take it back. Raises `UnknownName` when there is none of that number; one taken back already stays so."""
    known = {grant.number: grant for grant in standing(connection)}
    if number not in known:
        raise UnknownName("standing grant", str(number), [str(one) for one in known])
    if known[number].revoked_at is not None:
        return known[number]
    c = STANDING_GRANT.c
    change = STANDING_GRANT.update().where(c.number == number)
    connection.execute(change.values(revoked_at=to_micros(at), revoked_by=by))
    return replace(known[number], revoked_at=from_micros(to_micros(at)), revoked_by=by)


def asked_about(connection: Connection, limit: int) -> Sequence[str]:
    """The jobs for which something was asked or answered, those of the newest word first."""
    c = EVENT.c
    latest = func.max(c.at)
    query = select(c.job_id).where(c.kind.in_(KINDS)).group_by(c.job_id).order_by(latest.desc(), c.job_id).limit(limit)
    return list(connection.scalars(query))


def maybe_asking(connection: Connection) -> Sequence[str]:
    """The views, as they are stored, of the jobs not closed about which something was ever asked, oldest first."""
    about = select(EVENT.c.job_id).where(_ABOUT_APPROVAL)
    query = select(JOB.c.view).where(~JOB.c.closed, JOB.c.id.in_(about)).order_by(JOB.c.submitted_at, JOB.c.id)
    return list(connection.scalars(query))


def _grant(row: Any) -> StandingGrant:
    whom = {key: tuple(names) for key, names in json.loads(row.whom).items()}
    return StandingGrant(
        number=row.number,
        by=row.granted_by,
        at=from_micros(row.at),
        until=from_micros(row.until),
        total=Money(row.total),
        note=row.note,
        revoked_at=None if row.revoked_at is None else from_micros(row.revoked_at),
        revoked_by=row.revoked_by,
        rules=whom["rules"],
        users=whom["users"],
        teams=whom["teams"],
        projects=whom["projects"],
    )
