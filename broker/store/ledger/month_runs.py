"""What ran in a time: successful jobs, attempts on accelerators, and what programs reported. Inside the caller's
transaction; simulated machines are left out."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, and_, case, select

from broker.core.events.outcomes import JobState
from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.store.engine.times import to_micros
from broker.store.ledger.month_use import paid_in
from broker.store.tables.jobs import EVENT, JOB, MACHINE_TIME, STILL_THERE
from broker.store.tables.ledger import ENTRY

_T = MACHINE_TIME.c
_AT_ONCE = 1_000  # jobs that are asked about at once
_MILLI = 1_000


@dataclass(frozen=True, slots=True)
class GpuAttempt:
    """``time``: milliseconds of its accelerators in the time; ``price``: of one an hour at placement (USD)."""

    job_id: str
    attempt: int
    time: int
    price: Money | None


def succeeded(connection: Connection, team: str | None, start: datetime, end: datetime) -> int:
    """The jobs (of the team; None: of all) that succeeded and whose last machines went in the half-open time (UTC)."""
    left, right = to_micros(start), to_micros(end)
    # Asked for by job, and sorted out here: a join, or DISTINCT, would have SQLite read all of them.
    ids = select(_T.job_id).where(*_real(team), _T.until >= left, _T.until < right)
    count = 0
    for some in _at_once(sorted({*connection.scalars(ids)})):
        later = select(_T.job_id).where(_T.job_id.in_(some), _T.until >= right)
        states = connection.execute(select(JOB.c.id, JOB.c.state).where(JOB.c.id.in_(some)))
        done = {job_id for job_id, state in states if state == JobState.SUCCEEDED.value}
        count += len(done - {*connection.scalars(later)})
    return count


def gpu_attempts(
    connection: Connection, team: str | None, start: datetime, end: datetime, now: datetime, limit: int
) -> Sequence[GpuAttempt]:
    """The attempts with most accelerator time in the half-open time (UTC), the largest first."""
    left, right = to_micros(start), to_micros(end)
    until = case((_T.until == STILL_THERE, to_micros(now)), else_=_T.until)
    last, first = case((until > right, right), else_=until), case((_T.since < left, left), else_=_T.since)
    time = ((last - first) // _MILLI * _T.count * _T.nodes).label("time")
    within = and_(_T.until >= left, _T.since < right, _T.accelerator.is_not(None), _T.count > 0)
    query = select(_T.job_id, _T.attempt, time, _T.micros, _T.count).where(*_real(team), within)
    rows = connection.execute(query.order_by(time.desc(), _T.job_id, _T.attempt).limit(limit))
    return [
        GpuAttempt(job_id, attempt, int(taken), None if micros is None else Money(micros).share(1, count))
        for job_id, attempt, taken, micros, count in rows
    ]


def reported(
    connection: Connection, team: str | None, start: datetime, end: datetime
) -> Mapping[str, Sequence[Mapping[str, float]]]:
    """By job that had machines in the half-open time (UTC) and reported figures by its end: the newest report of before
    it, or an empty one, and the newest of all."""
    left, right = to_micros(start), to_micros(end)
    ids = select(_T.job_id).where(*_real(team), _T.until >= left, _T.since < right)
    found: defaultdict[str, list[Mapping[str, float]]] = defaultdict(lambda: [{}, {}])
    for some in _at_once(sorted({*connection.scalars(ids)})):
        query = (
            select(EVENT.c.job_id, EVENT.c.at, EVENT.c.body)
            .where(EVENT.c.job_id.in_(some), EVENT.c.kind == "metrics_reported", EVENT.c.at < right)
            .order_by(EVENT.c.job_id, EVENT.c.seq)
        )
        for job_id, at, body in connection.execute(query):
            metrics = json.loads(body)["metrics"]
            found[job_id][1] = metrics
            if at < left:
                found[job_id][0] = metrics
    return found


def spent_by_jobs(
    connection: Connection, job_ids: Sequence[str], start: datetime, end: datetime
) -> Mapping[str, Money]:
    """What those jobs spent in the half-open time (USD)."""
    wanted, found = set(job_ids), defaultdict[str, Money](lambda: Money.ZERO)
    if wanted:
        for paid in paid_in(connection, (ENTRY.c.job_id,), start, end):
            if paid.tags[0] in wanted:
                found[str(paid.tags[0])] += paid.amount
    return found


def _real(team: str | None) -> Sequence[ColumnElement[bool]]:
    kind = _T.money != MoneyKind.SANDBOX.value
    return (kind,) if team is None else (kind, _T.team == team)


def _at_once(job_ids: Sequence[str]) -> list[Sequence[str]]:
    return [job_ids[first : first + _AT_ONCE] for first in range(0, len(job_ids), _AT_ONCE)]
