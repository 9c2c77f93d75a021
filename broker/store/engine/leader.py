"""The locks of a store, which end with their process.

One leader per store and duty: the process that holds its lock runs the jobs, or polls the providers. And a lock of the
store's snapshots: shared by submissions, exclusive for a deletion.

SQLite: a lock file next to the database. PostgreSQL: an advisory lock, so that processes on other machines count. It
lasts for a separate session, or, for short duties, for a transaction.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from broker.core.errors import StoreProblem
from broker.store.engine.database import AdvisoryLock, Database


class LeaderRole(StrEnum):
    """The duties that one process at a time performs; the suffixes of their lock files' names."""

    JOBS = ".leader"
    PRICES = ".poller"
    LOCAL = ".asking"
    SWEEP = ".sweeper"
    PURCHASES = ".buyer"
    CAPACITY = ".capacity-check"
    RETENTION = ".retention"
    OUTSIDE = ".outside"


_TRY_LOCK = text("SELECT pg_try_advisory_lock(:key)")
_PAUSE = 0.05  # seconds between tries: no lock of the snapshots supports waiting with a time limit

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
    key = {"key": AdvisoryLock[duty.name].value}
    if duty is LeaderRole.LOCAL:
        # For one transaction of a pooled connection: each submission may need it, and a separate connection would cost
        # the server more than the rest of the submission.
        with database.reading() as connection:
            is_locked = connection.scalar(text("SELECT pg_try_advisory_xact_lock(:key)"), key)
            yield (lambda: True) if is_locked else None
        return
    with database.apart() as connection:
        if not connection.scalar(_TRY_LOCK, key):
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
                connection.execute(text("SELECT pg_advisory_unlock(:key)"), key)


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

    lock = FileLock(f"{path.absolute()}{duty.value}", mode=0o600)
    try:
        lock.acquire(timeout=wait)
    except Timeout:
        yield None
        return
    except OSError as error:
        raise _not_lockable(path, error) from error
    try:
        yield lambda: True
    finally:
        lock.release()


@contextmanager
def protect_snapshots(database: Database) -> Iterator[None]:
    """During the block, no snapshot of the store is deleted; waits some seconds for a deletion that runs.

    Several processes may be in such blocks at once. Raises `StoreProblem`.
    """
    if database.path is not None:
        with _lock_file(database.path) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield
        return
    with database.apart() as connection:
        connection.execute(text("SELECT pg_advisory_lock_shared(:key)"), {"key": AdvisoryLock.SNAPSHOTS.value})
        yield  # the end of the session releases it


@contextmanager
def hold_snapshots(database: Database, wait: float = 5.0) -> Iterator[bool]:
    """During the block, no process is in a block of `protect_snapshots`; yields false if one was for ``wait`` seconds.

    Raises `StoreProblem`.
    """
    if database.path is not None:
        with _lock_file(database.path) as descriptor:
            yield _try_exclusive(descriptor, wait)
        return
    with database.apart() as connection:
        until = time.monotonic() + wait
        key = {"key": AdvisoryLock.SNAPSHOTS.value}
        while not (is_locked := bool(connection.scalar(_TRY_LOCK, key))) and time.monotonic() < until:
            time.sleep(_PAUSE)
        yield is_locked


def _try_exclusive(descriptor: int, wait: float) -> bool:
    until = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(_PAUSE)


@contextmanager
def _lock_file(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(f"{path.absolute()}.snapshots", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _not_lockable(path, error) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _not_lockable(path: Path, error: OSError) -> StoreProblem:
    """The error for a lock file next to the store that cannot be written."""
    return StoreProblem(
        f"the lock file next to the store cannot be locked: {error.strerror or error}",
        where=str(path),
        hint="the folder of the store must be writable",
    )
