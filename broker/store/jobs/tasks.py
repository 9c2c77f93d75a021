"""The tasks of an array.

Each is a separate job, whose row names the array. Every function works inside the caller's transaction.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select, true

from broker.core.events.outcomes import JobState
from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import Balance
from broker.ledger.journal import TaskCounts
from broker.store.schema.jobs import VIEW_COLUMNS, JobRow
from broker.store.schema.ledger import LedgerBalanceRow


def no_task(*, alone: bool) -> ColumnElement[bool]:
    """The condition that a job is not a task.

    ``alone``: it is the only condition. Next to others, it must not make the database use the index of jobs that are
    not tasks instead of theirs.
    """
    is_no_task = JobRow.array_id.is_(None)
    return is_no_task if alone else is_no_task == true()  # PostgreSQL simplifies it, and so estimates it well


def newest(array: str, earlier: Sequence[str]) -> ColumnElement[bool]:
    """The condition for the newest run of each task of an array: its own tasks, and those of the ``earlier`` arrays
    that it retries which succeeded, as it runs all others again."""
    own = JobRow.array_id == array
    if not earlier:
        return own
    finished = JobRow.array_id.in_(earlier), JobRow.array_id.is_not(None), JobRow.state == JobState.SUCCEEDED.value
    return or_(own, and_(*finished))


def counts(connection: Connection, arrays: Sequence[str]) -> dict[str, TaskCounts]:
    """The number of tasks of each array, by state."""
    states: dict[str | None, dict[JobState, int]] = {array: {} for array in arrays}
    open_counts: dict[str | None, int] = dict.fromkeys(arrays, 0)
    query = select(JobRow.array_id, JobRow.state, JobRow.closed, func.count()).where(
        JobRow.array_id.in_(arrays), JobRow.array_id.is_not(None)
    )
    for array, state, closed, count in connection.execute(query.group_by(JobRow.array_id, JobRow.closed, JobRow.state)):
        counts_by_state = states[array]
        counts_by_state[JobState(state)] = counts_by_state.get(JobState(state), 0) + count
        open_counts[array] += 0 if closed else count
    return {array: TaskCounts(states[array], open_counts[array]) for array in arrays}


def whole_counts(connection: Connection, arrays: Mapping[str, Sequence[str]]) -> dict[str, TaskCounts]:
    """`counts` of the tasks of each array as in `newest`. ``arrays``: for each the arrays that it retries."""
    own_counts = counts(
        connection, list({*arrays, *(earlier_array for earlier in arrays.values() for earlier_array in earlier)})
    )
    totals = {}
    for array, earlier in arrays.items():
        states, earlier_total = dict(own_counts[array].states), 0
        ended = sum(own_counts[earlier_array].states.get(JobState.SUCCEEDED, 0) for earlier_array in earlier)
        if ended:
            states[JobState.SUCCEEDED], earlier_total = states.get(JobState.SUCCEEDED, 0) + ended, ended
        totals[array] = TaskCounts(states, own_counts[array].open, earlier_total)
    return totals


def rows(connection: Connection, *conditions: ColumnElement[bool], limit: int | None = None) -> Sequence[Any]:
    """The rows of tasks that satisfy the conditions, in the order of their start, with the columns that
    `broker.store.jobs.quarantine` needs.
    """
    query = select(*VIEW_COLUMNS).where(*conditions).order_by(JobRow.submitted_at, JobRow.id)
    return connection.execute(query.limit(limit)).all()


def money(
    connection: Connection, arrays: Sequence[str], closed: bool | None = None
) -> dict[str, dict[MoneyKind, Balance]]:
    """The total hold and spend of the tasks of each array; with ``closed``, only of closed or of open ones.

    Without the dates of holds.
    """
    query = (
        select(
            JobRow.array_id,
            LedgerBalanceRow.money,
            func.sum(LedgerBalanceRow.available),
            func.sum(LedgerBalanceRow.held),
            func.sum(LedgerBalanceRow.spent),
        )
        .join_from(JobRow, LedgerBalanceRow, LedgerBalanceRow.job_id == JobRow.id)
        .where(JobRow.array_id.in_(arrays), JobRow.array_id.is_not(None))
        .group_by(JobRow.array_id, LedgerBalanceRow.money)
    )
    if closed is not None:
        query = query.where(JobRow.closed if closed else ~JobRow.closed)
    result: dict[str, dict[MoneyKind, Balance]] = {}
    for array, kind, *sums in connection.execute(query):
        available, held, spent = (Money(int(micros)) for micros in sums)
        result.setdefault(str(array), {})[MoneyKind(kind)] = Balance(available, held, spent)
    return result
