"""The tasks of an array.

Each is a separate job, whose row names the array. Every function works inside the caller's transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select

from broker.core.events.outcomes import JobState
from broker.core.job.stop_when import ReportedValue
from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import Balance
from broker.ledger.journal import TaskCounts
from broker.store.jobs.quarantine import COLUMNS
from broker.store.tables.jobs import EVENT, JOB
from broker.store.tables.ledger import BALANCE

_AT_ONCE = 500  # the maximum number of jobs per query


def no_task(*, alone: bool) -> ColumnElement[bool]:
    """The condition that a job is not a task.

    ``alone``: it is the only condition. Beside others, it must not make the database use the index of jobs that are not
    tasks instead of theirs.
    """
    return JOB.c.array_id.is_(None) if alone else func.coalesce(JOB.c.array_id, "") == ""


def counts(connection: Connection, arrays: Sequence[str]) -> dict[str, TaskCounts]:
    """The number of tasks of each array, by state."""
    c = JOB.c
    states: dict[str, dict[JobState, int]] = {array: {} for array in arrays}
    still_open = dict.fromkeys(arrays, 0)
    query = select(c.array_id, c.state, c.closed, func.count()).where(c.array_id.in_(arrays), c.array_id.is_not(None))
    for array, state, closed, count in connection.execute(query.group_by(c.array_id, c.closed, c.state)):
        of_array = states[array]
        of_array[JobState(state)] = of_array.get(JobState(state), 0) + count
        still_open[array] += 0 if closed else count
    return {array: TaskCounts(states[array], still_open[array]) for array in arrays}


def succeeded(connection: Connection, array: str) -> list[str]:
    """The ids of the tasks of an array that succeeded, in any order."""
    c = JOB.c
    return list(connection.scalars(select(c.id).where(c.array_id == array, c.state == JobState.SUCCEEDED.value)))


def reported(connection: Connection, job_ids: Sequence[str], metric: str) -> dict[str, list[ReportedValue]]:
    """The values of a metric that those jobs reported with a step, in the order of their reports."""
    c = EVENT.c
    found: dict[str, list[ReportedValue]] = {}
    for first in range(0, len(job_ids), _AT_ONCE):
        some = job_ids[first : first + _AT_ONCE]
        query = select(c.job_id, c.body).where(c.job_id.in_(some), c.kind == "metrics_reported")
        for job_id, body in connection.execute(query.order_by(c.job_id, c.seq)):
            told = json.loads(body)
            if told.get("step") is not None and metric in told["metrics"]:
                found.setdefault(job_id, []).append(ReportedValue(told["step"], told["metrics"][metric]))
    return found


def rows(connection: Connection, array: str, *also: ColumnElement[bool], limit: int | None = None) -> Sequence[Any]:
    """The rows of tasks of the array that satisfy the conditions, in the order of their start, with the columns that
    `broker.store.jobs.quarantine` needs.
    """
    query = select(*COLUMNS).where(JOB.c.array_id == array, *also).order_by(JOB.c.submitted_at, JOB.c.id)
    return connection.execute(query.limit(limit)).all()


def money(
    connection: Connection, arrays: Sequence[str], closed: bool | None = None
) -> dict[str, dict[MoneyKind, Balance]]:
    """The total hold and spend of the tasks of each array; with ``closed``, only of closed or of open ones.

    Without the dates of holds.
    """
    b, c = BALANCE.c, JOB.c
    query = (
        select(c.array_id, b.money, func.sum(b.available), func.sum(b.held), func.sum(b.spent))
        .join_from(JOB, BALANCE, b.job_id == c.id)
        .where(c.array_id.in_(arrays), c.array_id.is_not(None))
        .group_by(c.array_id, b.money)
    )
    if closed is not None:
        query = query.where(c.closed if closed else ~c.closed)
    found: dict[str, dict[MoneyKind, Balance]] = {}
    for array, kind, *sums in connection.execute(query):
        available, held, spent = (Money(int(one)) for one in sums)
        found.setdefault(array, {})[MoneyKind(kind)] = Balance(available, held, spent)
    return found
