"""Divides the jobs of a PostgreSQL store among several processes.

The jobs whose ids have the same hash number form a part. A process holds a session lock on each of its parts, so that
no two processes run the same job. When a process ends, for whatever reason, its parts become free for the others. All
these processes hold the leader lock of jobs in shared mode; a process that leads alone holds it exclusively.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any
from zlib import crc32

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from broker.core.errors import InvalidInput
from broker.store.engine.advisory_locks import AdvisoryLock
from broker.store.engine.database import Database

PARTS = 32
"""The number of parts: large enough that processes get nearly equal numbers of them."""

_KEY = AdvisoryLock.JOBS.value
# In pg_locks, locks with one key have objsubid 1, those with two keys 2.
_LOCKS = text(
    "SELECT objsubid, objid::bigint AS number FROM pg_locks WHERE locktype = 'advisory' AND granted"
    " AND (objsubid = 1 AND objid = :key AND mode = 'ShareLock' OR objsubid = 2 AND classid = :key)"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_TAKE = text("SELECT pg_try_advisory_lock(:key, :part)")
_GIVE_BACK = text("SELECT pg_advisory_unlock(:key, :part)")


def part_of(job_id: str) -> int:
    """The part to which a job belongs; the same in every process and version."""
    return crc32(job_id.encode()) % PARTS


class JobShare:
    """The parts of one process. For one thread. They are lost with the connection, and are not taken again."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._parts: set[int] = set()
        self._lost = False

    @property
    def parts(self) -> frozenset[int]:
        """The parts that this process had at the last call of `renew`."""
        return frozenset(self._parts)

    def has(self, job_id: str) -> bool:
        """Whether this process runs that job."""
        return part_of(job_id) in self._parts

    @property
    def first(self) -> bool:
        """Whether this process has the duties that only one of the processes may have."""
        return 0 in self._parts

    def still(self) -> bool:
        """Whether the connection, and with it the parts, still exists."""
        self._ask(text("SELECT 1"))
        return not self._lost

    def renew(self, busy: Callable[[], Collection[str]]) -> None:
        """Take free parts, or release those beyond an equal share.

        ``busy``: returns the ids of jobs with unfinished work in this process; their parts are kept until it is
        finished.
        """
        rows = self._ask(_LOCKS, key=_KEY)
        if rows is None:
            return
        processes = sum(1 for row in rows if row.objsubid == 1)
        taken = {row.number for row in rows if row.objsubid != 1}
        equal = -(-PARTS // max(processes, 1))
        if len(self._parts) > equal:
            kept = {part_of(job_id) for job_id in busy()}
            for part in sorted(self._parts - kept, reverse=True)[: len(self._parts) - equal]:
                # Dropped before the release: if the answer is lost, no job has two processes.
                self._parts.discard(part)
                self._ask(_GIVE_BACK, key=_KEY, part=part)
        for part in sorted(set(range(PARTS)) - taken)[: max(equal - len(self._parts), 0)]:
            got = self._ask(_TAKE, key=_KEY, part=part)
            if got is not None and got[0][0]:
                self._parts.add(part)

    def _ask(self, statement: Any, **about: int) -> Any:
        """The rows of a statement; None once the connection was lost: a new connection would answer, but has
        no locks.
        """
        if not self._lost:
            try:
                self._lost = self._connection.invalidated
                if not self._lost:
                    return self._connection.execute(statement, about).all()
            except SQLAlchemyError:
                self._lost = True
        self._parts.clear()
        return None


@contextmanager
def shared(database: Database) -> Iterator[JobShare | None]:
    """A share of the PostgreSQL store's jobs during the block; None if another process leads alone.

    Raises `StoreProblem`, and `InvalidInput` for SQLite.
    """
    if database.is_sqlite:
        raise InvalidInput(
            "the jobs of a SQLite store cannot be shared: it is for one machine and one service",
            where="GPUBROKER_SERVE__SHARE_JOBS",
            hint="set it to false, or use PostgreSQL (GPUBROKER_STORE)",
        )
    with database.apart() as connection:
        if not connection.scalar(text("SELECT pg_try_advisory_lock_shared(:key)"), {"key": _KEY}):
            yield None
            return
        share = JobShare(connection)
        try:
            yield share
        finally:
            if share.still():
                connection.execute(text("SELECT pg_advisory_unlock_all()"))
