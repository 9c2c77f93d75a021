"""Locks the snapshots of a store: shared by submissions, exclusive for a deletion. The lock ends with its process.

SQLite: a lock file next to the database. PostgreSQL: an advisory lock of a separate session, so that submissions on
other machines count.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import text

from broker.store.engine.advisory_locks import AdvisoryLock
from broker.store.engine.database import Database
from broker.store.engine.leader import not_lockable

_PAUSE = 0.05  # seconds between tries: neither lock supports waiting with a time limit


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
def exclusive(database: Database, wait: float = 5.0) -> Iterator[bool]:
    """During the block, no process is in a block of `protect_snapshots`; yields false if one was for ``wait`` seconds.

    Raises `StoreProblem`.
    """
    if database.path is not None:
        with _lock_file(database.path) as descriptor:
            yield _try_exclusive(descriptor, wait)
        return
    with database.apart() as connection:
        until = time.monotonic() + wait
        query, key = text("SELECT pg_try_advisory_lock(:key)"), {"key": AdvisoryLock.SNAPSHOTS.value}
        while not (is_locked := bool(connection.scalar(query, key))) and time.monotonic() < until:
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
        raise not_lockable(path, error) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)
