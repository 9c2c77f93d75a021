"""One leader per store and duty: the process that holds its lock runs the jobs, or polls the providers.

The lock ends with the process.

SQLite: a lock file next to the database. PostgreSQL: an advisory lock, so that leaders on other machines count. It
lasts for a session, or, for short duties, for a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from broker.core.errors import StoreProblem
from broker.store.engine.advisory_locks import AdvisoryLock
from broker.store.engine.database import Database


class LeaderRole(StrEnum):
    """The duties that one process at a time performs."""

    JOBS = "jobs"
    PRICES = "prices"
    LOCAL = "local"
    SWEEP = "sweep"
    PURCHASES = "purchases"
    CAPACITY = "capacity"
    RETENTION = "retention"
    OUTSIDE = "outside"


# Suffixes of the lock file's name.
_FILES = {
    LeaderRole.JOBS: ".leader",
    LeaderRole.PRICES: ".poller",
    LeaderRole.LOCAL: ".asking",
    LeaderRole.SWEEP: ".sweeper",
    LeaderRole.PURCHASES: ".buyer",
    LeaderRole.CAPACITY: ".capacity-check",
    LeaderRole.RETENTION: ".retention",
    LeaderRole.OUTSIDE: ".outside",
}

StillLeading = Callable[[], bool]
"""Whether this process is still the leader: a restart of the database ends leadership."""


@contextmanager
def lead(database: Database, duty: LeaderRole = LeaderRole.JOBS) -> Iterator[StillLeading | None]:
    """Leadership of the store's jobs, or another duty, during the block; None if another process has it. Raises
    `StoreProblem`."""
    if database.path is not None:
        # `is_led` takes the lock briefly, so wait half a second. For local sources, do not wait: the process that polls
        # them now provides a recent result.
        with _file_lead(database.path, duty, wait=0 if duty is LeaderRole.LOCAL else 0.5) as is_leading:
            yield is_leading
        return
    if duty is LeaderRole.LOCAL:
        with _short_lead(database, duty) as is_leading:
            yield is_leading
        return
    with database.apart() as connection:
        if not connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": AdvisoryLock[duty.name].value}):
            yield None
            return

        lost = False

        def is_leading() -> bool:
            # Once lost, leadership is not regained: a new connection would answer, but has no lock.
            nonlocal lost
            try:
                lost = lost or connection.invalidated or connection.scalar(text("SELECT 1")) != 1
            except SQLAlchemyError:
                lost = True
            return not lost

        try:
            yield is_leading
        finally:
            if is_leading():
                connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": AdvisoryLock[duty.name].value})


@contextmanager
def _short_lead(database: Database, duty: LeaderRole) -> Iterator[StillLeading | None]:
    """Leadership for one transaction of a pooled connection: each submission may need it, and a separate connection
    would cost the server more than the rest of the submission."""
    with database.reading() as connection:
        is_locked = connection.scalar(
            text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": AdvisoryLock[duty.name].value}
        )
        yield (lambda: True) if is_locked else None


def is_led(database: Database, duty: LeaderRole = LeaderRole.JOBS) -> bool:
    """Whether a process is the leader now. Raises `StoreProblem`."""
    if database.path is not None:
        with _file_lead(database.path, duty, wait=0) as leadership:
            return leadership is None
    with database.reading() as connection:
        query = text(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = :key"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return bool(connection.scalar(query, {"key": AdvisoryLock[duty.name].value}))


@contextmanager
def _file_lead(path: Path, duty: LeaderRole, wait: float) -> Iterator[StillLeading | None]:
    from filelock import FileLock, Timeout  # it imports asyncio; most commands never need it

    lock = FileLock(f"{path.absolute()}{_FILES[duty]}", mode=0o600)
    try:
        lock.acquire(timeout=wait)
    except Timeout:
        yield None
        return
    except OSError as error:
        raise not_lockable(path, error) from error
    try:
        yield lambda: True
    finally:
        lock.release()


def not_lockable(path: Path, error: OSError) -> StoreProblem:
    """The error for a lock file next to the store that cannot be written."""
    return StoreProblem(
        f"the lock file next to the store cannot be locked: {error.strerror or error}",
        where=str(path),
        hint="the folder of the store must be writable",
    )
