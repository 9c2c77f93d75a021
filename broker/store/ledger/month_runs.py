"""The runs in a period: successful jobs, attempts on accelerators, and reported metrics.

Inside the caller's transaction; without simulated machines.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, exists, func, not_, select
from sqlalchemy.orm import aliased, join, outerjoin

from broker.core.events.agent_events import ResourcesUsed, ResourceUse, TokensServed, add_use
from broker.core.events.outcomes import JobState
from broker.core.market.accelerators import card_share
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.policy.policy import RentedHours
from broker.core.values.money import Money
from broker.ledger.entries import DAY, Account
from broker.ledger.finops.tokens import ServedAttempt, served_attempt, timeline
from broker.ledger.finops.units import MeasuredAttempt
from broker.store.engine.fields import from_micros, to_micros
from broker.store.engine.statements import for_jobs, in_jobs
from broker.store.ledger.machine_time import time_within
from broker.store.ledger.month_use import payments_in
from broker.store.schema.jobs import (
    HAS_EVENT,
    IS_CHECKPOINT,
    IS_METRICS_REPORT,
    IS_RESOURCE_USE,
    IS_TOKEN_COUNT,
    STILL_RUNNING,
    AttemptEventRow,
    JobRow,
    MachineTimeRow,
)
from broker.store.schema.ledger import LedgerEntryRow
from broker.store.schema.row import columns_of

_MILLI = 1_000
_MIN_CHECKPOINTS = 3  # fewer show no interval


def count_succeeded(connection: Connection, team: str | None, start: datetime, end: datetime) -> int:
    """The number of jobs (of the team; None: of all) that succeeded and whose last machine was gone in the half-open
    period (UTC).
    """
    query = _successful(select(func.count(MachineTimeRow.job_id.distinct())), team, start, end)
    return int(connection.scalar(query) or 0)


def succeeded_jobs(
    connection: Connection, team: str | None, start: datetime, end: datetime, most: int
) -> Sequence[str]:
    """The ids of the jobs that `count_succeeded` counts, the latest end of machines first; at most ``most``."""
    query = _successful(select(MachineTimeRow.job_id), team, start, end).order_by(
        MachineTimeRow.until.desc(), MachineTimeRow.job_id
    )
    ids: dict[str, None] = {}
    for job_id in connection.scalars(query):  # one row per attempt; for GROUP BY, SQLite would read all machines
        ids[job_id] = None
        if len(ids) == most:
            break
    return list(ids)


def _successful(query: Select[Any], team: str | None, start: datetime, end: datetime) -> Select[Any]:
    """The query over attempts, restricted to jobs that succeeded and whose last machine was gone in that period."""
    left, right = to_micros(start), to_micros(end)
    others = aliased(MachineTimeRow, name="others")
    later = exists().where(others.job_id == MachineTimeRow.job_id, others.until >= right)
    # An expression, so that SQLite looks up the jobs of those machines, not the machines of all such jobs.
    succeeded = func.coalesce(JobRow.state, "") == JobState.SUCCEEDED.value
    within = (*_real_machines(team), MachineTimeRow.until >= left, MachineTimeRow.until < right)
    return query.select_from(join(MachineTimeRow, JobRow, JobRow.id == MachineTimeRow.job_id)).where(
        *within, succeeded, not_(later)
    )


@dataclass(frozen=True, slots=True)
class MachineHours:
    """A job's machines: accelerator hours, those of spot machines, and the end of the last machine (UTC).

    ``accelerator``: None if they had different ones.
    """

    gpu_hours: float
    spot_gpu_hours: float
    until: datetime
    accelerator: str | None


def machine_hours(connection: Connection, job_ids: Sequence[str]) -> Mapping[str, MachineHours]:
    """The accelerator hours of those jobs whose machines had accelerators and are gone."""
    hours, spot, ends = defaultdict[str, float](float), defaultdict[str, float](float), dict[str, int]()
    kinds = defaultdict[str, set[str | None]](set)
    columns = columns_of(MachineTimeRow, "job_id", "since", "until", "count", "nodes", "accelerator", "capacity_type")
    query = select(*columns).where(
        in_jobs(MachineTimeRow.job_id), MachineTimeRow.count > 0, MachineTimeRow.until < STILL_RUNNING
    )
    for job_id, since, until, count, nodes, accelerator, kind in for_jobs(connection, query, job_ids):
        used_hours = (until - since) / 3.6e9 * count * nodes * float(card_share(accelerator)[1])
        hours[job_id] += used_hours
        spot[job_id] += used_hours if kind == CapacityType.SPOT.value else 0.0
        ends[job_id] = max(until, ends.get(job_id, until))
        kinds[job_id].add(accelerator)
    return {
        job_id: MachineHours(
            hours[job_id],
            spot[job_id],
            from_micros(end),
            next(iter(kinds[job_id])) if len(kinds[job_id]) == 1 else None,
        )
        for job_id, end in ends.items()
    }


def last_reports(connection: Connection, job_ids: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
    """The newest reported metrics of each of those jobs that reported any."""
    newest = select(AttemptEventRow.job_id, func.max(AttemptEventRow.seq).label("seq"))
    newest = newest.where(in_jobs(AttemptEventRow.job_id), IS_METRICS_REPORT).group_by(AttemptEventRow.job_id)
    last = newest.subquery()
    is_last = and_(AttemptEventRow.job_id == last.c.job_id, AttemptEventRow.seq == last.c.seq)
    query = select(AttemptEventRow.job_id, AttemptEventRow.body).join(last, is_last)
    return {job_id: json.loads(body)["metrics"] for job_id, body in for_jobs(connection, query, job_ids)}


def plans_and_ends(connection: Connection, job_ids: Sequence[str]) -> Sequence[tuple[str, int, str]]:
    """The requests for machines and the ends of attempts of those jobs, in order, each as job, time (microseconds) and
    body.
    """
    query = (
        select(AttemptEventRow.job_id, AttemptEventRow.at, AttemptEventRow.body)
        .where(in_jobs(AttemptEventRow.job_id), AttemptEventRow.kind.in_(("launch_requested", "attempt_ended")))
        .order_by(AttemptEventRow.job_id, AttemptEventRow.seq)
    )
    return [(job_id, at, body) for job_id, at, body in for_jobs(connection, query, job_ids)]


def gpu_attempts(
    connection: Connection, team: str | None, start: datetime, end: datetime
) -> Sequence[tuple[MeasuredAttempt, RentedHours]]:
    """The attempts on accelerators in a past half-open period (UTC) with what they used and saved in it, by job; and
    each as rented hours, with which policies decide on spot."""
    left, right, row = to_micros(start), to_micros(end), MachineTimeRow
    columns = (row.user_name, row.team, row.project, row.workload, row.environment)
    time = time_within(left, right, right) // _MILLI * row.count * row.nodes
    query = (
        select(
            row.job_id, row.attempt, JobRow.name, row.accelerator, row.capacity_type, time, row.micros, row.count,
            row.nodes, row.since, *columns,
        )
        .select_from(outerjoin(row, JobRow, JobRow.id == row.job_id))
        .where(*_real_machines(team), row.until >= left, row.since < right, row.accelerator.is_not(None), row.count > 0)
    )  # fmt: skip
    uses, saved = _resource_use(connection, left, right), _checkpoint_gaps(connection, left, right)
    attempts = []
    for job_id, attempt, name, accelerator, kind, used, micros, count, nodes, since, *tags in connection.execute(query):
        user, owner_team, project, workload, environment = tags
        rented = RentedHours(user, owner_team, project, workload, environment, simulated=False)
        measured = MeasuredAttempt(
            job_id,
            attempt,
            int(used),
            None if micros is None else Money(micros).share(1, count),
            owner_team,
            project,
            name or job_id,
            user,
            workload,
            accelerator or "",
            CapacityType(kind),
            checkpoint_gap=saved.get((job_id, attempt)),
            gpus=count * nodes,
            begin=max(since, left) // _MILLI,
            use=uses.get((job_id, attempt), {}),
        )
        attempts.append((measured, rented))
    return sorted(attempts, key=lambda pair: (pair[0].job_id, pair[0].attempt))  # in SQL, SQLite would read all rows


def _resource_use(connection: Connection, left: int, right: int) -> Mapping[tuple[str, int], ResourceUse]:
    """By job and attempt what it used in the period (microseconds)."""
    row, uses = AttemptEventRow, dict[tuple[str, int], ResourceUse]()
    query = select(row.job_id, row.attempt, row.body).where(IS_RESOURCE_USE, row.at >= left, row.at < right)
    for job_id, attempt, body in connection.execute(query.order_by(row.at)):
        key = job_id, attempt or 0
        uses[key] = add_use(uses.get(key, {}), ResourcesUsed.model_validate_json(body).figures)
    return uses


def token_counts(
    connection: Connection, team: str | None, start: datetime, end: datetime
) -> Mapping[tuple[str, int], Sequence[TokensServed]]:
    """By job and attempt the counts of served tokens whose time begins in the half-open period (UTC)."""
    row, counts = AttemptEventRow, defaultdict[tuple[str, int], list[TokensServed]](list)
    same_attempt = and_(MachineTimeRow.job_id == row.job_id, MachineTimeRow.attempt == row.attempt)
    query = (
        select(row.job_id, row.attempt, row.body)
        .select_from(join(row, MachineTimeRow, same_attempt))
        .where(IS_TOKEN_COUNT, row.at >= to_micros(start), row.at < to_micros(end) + DAY, *_real_machines(team))
    )  # a count is written at the end of its time
    for job_id, attempt, body in connection.execute(query.order_by(row.at)):
        count = TokensServed.model_validate_json(body)
        if start <= count.since < end:
            counts[job_id, attempt or 0].append(count)
    return counts


def served_attempts(
    connection: Connection, team: str | None, start: datetime, end: datetime
) -> Sequence[ServedAttempt]:
    """The attempts that counted served tokens in the half-open period (UTC), with their spend in it."""
    entry, left, right = LedgerEntryRow, to_micros(start), to_micros(end)
    counts, spent = token_counts(connection, team, start, end), defaultdict[Any, list[tuple[int, int, int]]](list)
    query = select(entry.job_id, entry.attempt, entry.micros, entry.covers_from, entry.covers_to).where(
        in_jobs(entry.job_id),
        entry.account == Account.SPENT.value,
        entry.money != MoneyKind.SANDBOX.value,
        entry.covers_to >= left,
        entry.covers_from < right,
    )
    for job_id, attempt, micros, since, until in for_jobs(connection, query, sorted({key[0] for key in counts})):
        spent[job_id, attempt].append((micros, since - left, until - left))
    return [
        served_attempt(key[0], timeline(of_attempt, start, end), spent[key], right - left)
        for key, of_attempt in sorted(counts.items())
    ]


def _checkpoint_gaps(connection: Connection, left: int, right: int) -> Mapping[tuple[str, int], timedelta]:
    """By job and attempt the mean time between the checkpoints that it saved in the period; of three and more."""
    row, count = AttemptEventRow, func.count()
    query = (
        select(row.job_id, row.attempt, func.min(row.at), func.max(row.at), count)
        .where(IS_CHECKPOINT, row.at >= left, row.at < right)
        .group_by(row.job_id, row.attempt)
        .having(count >= _MIN_CHECKPOINTS)
    )
    return {
        (job_id, attempt or 0): timedelta(microseconds=last - first) / (number - 1)
        for job_id, attempt, first, last, number in connection.execute(query)
    }


def reported_metrics(
    connection: Connection, team: str | None, start: datetime, end: datetime
) -> Mapping[str, Sequence[Mapping[str, float]]]:
    """By job that had machines in the half-open period (UTC) and reported metrics by its end: the newest report before
    the period (empty without one), and the newest report by its end.
    """
    left, right = to_micros(start), to_micros(end)
    # An outer join, so that SQLite looks up the reports of jobs that ran in the period, not all reports ever made.
    is_report = and_(AttemptEventRow.job_id == MachineTimeRow.job_id, AttemptEventRow.at < right, IS_METRICS_REPORT)
    conditions = (*_real_machines(team), MachineTimeRow.until >= left, MachineTimeRow.since < right)
    query = select(AttemptEventRow.job_id, AttemptEventRow.at, AttemptEventRow.body).select_from(
        outerjoin(MachineTimeRow, AttemptEventRow, is_report)
    )
    query = query.where(*conditions, HAS_EVENT)
    last: defaultdict[str, list[str]] = defaultdict(lambda: ["", ""])
    # A report occurs once for each attempt of its job, and only two reports of a job are needed, so only those are
    # parsed.
    for job_id, at, body in connection.execute(query.order_by(AttemptEventRow.job_id, AttemptEventRow.seq)):
        last[job_id][1] = body
        if at < left:
            last[job_id][0] = body
    return {job_id: [json.loads(body)["metrics"] if body else {} for body in bodies] for job_id, bodies in last.items()}


def spent_by_jobs(
    connection: Connection, job_ids: Sequence[str], start: datetime, end: datetime
) -> Mapping[str, Money]:
    """The spend of those jobs (USD) in the half-open period (UTC)."""
    jobs, spent = set(job_ids), defaultdict[str, Money](lambda: Money.ZERO)
    if jobs:
        for payment in payments_in(connection, (LedgerEntryRow.job_id,), start, end):
            if payment.tags[0] in jobs:
                spent[str(payment.tags[0])] += payment.amount
    return spent


def _real_machines(team: str | None) -> Sequence[ColumnElement[bool]]:
    kind = MachineTimeRow.money != MoneyKind.SANDBOX.value
    return (kind,) if team is None else (kind, MachineTimeRow.team == team)
