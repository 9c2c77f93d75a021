"""Reads all open jobs for the reconciler (changes, holds and spend) with a number of queries that does not depend on
the number of jobs. Every function works inside the caller's transaction.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, func, select, union

from broker.core.market.offers import MoneyKind
from broker.ledger.entries import Balance
from broker.store.engine.statement_cache import for_jobs, in_jobs
from broker.store.ledger.ledger import BALANCE_COLUMNS, balance_from
from broker.store.schema.jobs import UNCLOSED, VIEW_COLUMNS, AttemptEventRow, JobRow
from broker.store.schema.ledger import LedgerBalanceRow, LedgerEntryRow

_LAST = (
    select(func.max(AttemptEventRow.seq)).where(AttemptEventRow.job_id == JobRow.id).correlate(JobRow).scalar_subquery()
)
_LAST_EVENTS = select(JobRow.id, _LAST).where(UNCLOSED).order_by(JobRow.submitted_at, JobRow.id)
_LAST_EVENTS_OF = _LAST_EVENTS.where(in_jobs(JobRow.id))
_VIEWS = select(*VIEW_COLUMNS).where(in_jobs(JobRow.id))
# Not a join: SQLite would start it from the balances of all jobs, closed ones included.
_BALANCES = select(LedgerBalanceRow.job_id, LedgerBalanceRow.money, *BALANCE_COLUMNS).where(
    LedgerBalanceRow.job_id.in_(select(JobRow.id).where(UNCLOSED))
)
_KINDS = {kind.value: kind for kind in MoneyKind}  # faster than a call of the enumeration


def last_events(connection: Connection, job_ids: Sequence[str] | None = None) -> dict[str, int]:
    """The number of the last event of each job that is not closed, oldest job first; with ``job_ids``, only of those
    jobs.
    """
    if job_ids is None:
        rows = connection.execute(_LAST_EVENTS)
    else:
        rows = connection.execute(_LAST_EVENTS_OF, {"jobs": job_ids})
    return dict(tuple(row) for row in rows.all())


def views(connection: Connection, job_ids: Sequence[str]) -> Iterator[Any]:
    """The rows of those jobs, with the columns that `broker.store.jobs.quarantine` needs."""
    return for_jobs(connection, _VIEWS, job_ids)


def ids_after(connection: Connection, last: str, limit: int) -> list[str]:
    """The next ``limit`` ids after ``last`` of jobs with any record, open or closed, in the order of the database."""
    parts = (
        select(column.label("job_id")).distinct().where(column > last).order_by(column).limit(limit).subquery()
        for column in (JobRow.id, AttemptEventRow.job_id, LedgerBalanceRow.job_id, LedgerEntryRow.job_id)
    )
    all_ids = union(*(select(part.c.job_id) for part in parts)).subquery()
    return list(connection.scalars(select(all_ids.c.job_id).order_by(all_ids.c.job_id).limit(limit)))


def balances(connection: Connection) -> dict[str, dict[MoneyKind, Balance]]:
    """The balances of each job that is not closed and has entries."""
    result: dict[str, dict[MoneyKind, Balance]] = {}
    for job_id, money, *columns in connection.execute(_BALANCES).all():
        result.setdefault(job_id, {})[_KINDS[money]] = balance_from(*columns)
    return result
