"""Copies of a store in SQLite: made while it is in use, and restored in one transaction."""

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from broker.core.errors import InvalidInput, NotAllowed, StoreProblem
from broker.store.engine.database import BUSY_SECONDS, Database, explain
from broker.store.engine.fields import from_micros
from broker.store.engine.revisions import REVISIONS, is_before_first

_STEP = 0.05  # seconds between two tries while another process writes
_NEWEST = "SELECT max(at) FROM (SELECT at FROM attempt_event ORDER BY rowid DESC LIMIT 1)"


@dataclass(frozen=True, slots=True)
class StoreCopy:
    """A copy of a store. ``size``: bytes; ``revision``: of its schema; ``newest_event``: None if no job was
    ever submitted."""

    path: Path
    size: int
    revision: str
    newest_event: datetime | None


def copy_to(database: Database, file: Path) -> StoreCopy:
    """Copy the store as of one moment into a new private file, which appears when it is complete and checked.

    Other writers continue meanwhile.

    Raises `InvalidInput` for a store in PostgreSQL, `NotAllowed` if the file exists, `StoreProblem` if it cannot be
    written or the store is damaged.
    """
    source = _path_of(database)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    except OSError as error:
        raise explain(error, str(file)) from error
    os.close(handle)
    part = Path(name)
    try:
        with _explain_copy_errors(file):
            with closing(_open_read_only(source)) as store, closing(sqlite3.connect(part)) as copy:
                store.backup(copy, pages=-1, sleep=_STEP)  # in several steps, each commit meanwhile would restart it
                copy.execute("PRAGMA journal_mode=DELETE")
            checked = _verify_copy(part, source)
            os.link(part, file)  # unlike a rename, never over another file
    except FileExistsError as error:
        raise NotAllowed(f"{file} exists and is not overwritten", hint="give the name of a new file") from error
    finally:
        part.unlink(missing_ok=True)
    return StoreCopy(file, file.stat().st_size, checked.revision, checked.newest_event)


def restore_from(database: Database, file: Path) -> StoreCopy:
    """Replace the content of the store by that of a copy, in one transaction: other processes see all of it or nothing.

    Raises `InvalidInput` as `copy_to` and for a file that is not an undamaged store that this version can read;
    `StoreProblem` if the store is damaged or is in use for longer than a writer waits.
    """
    target = _path_of(database)
    description = examine(file)
    until = time.monotonic() + BUSY_SECONDS

    def check_deadline(
        status: int, remaining: int, total: int
    ) -> None:  # `left` is also 0 while it waits for other writers
        if time.monotonic() > until and status & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise sqlite3.OperationalError("another process writes to it")

    database.close()
    with (
        _explain_copy_errors(target),
        closing(_open_read_only(file)) as copy,
        closing(sqlite3.connect(target, timeout=_STEP)) as store,
    ):
        copy.backup(store, pages=-1, sleep=_STEP, progress=check_deadline)
    return description


def _verify_copy(part: Path, source: Path) -> StoreCopy:
    """The description of a new copy. If it is damaged, so is the store."""
    try:
        return examine(part)
    except InvalidInput as error:
        hint = "to restore a copy, first move it away, with its -wal and -shm files"
        raise StoreProblem(f"the store is damaged: {error.message}", where=str(source), hint=hint) from error


def examine(file: Path) -> StoreCopy:
    """The description of a copy. Raises `InvalidInput` if it is not an undamaged store that this version can read."""
    try:
        with closing(_open_read_only(file)) as copy:
            (state,) = copy.execute("PRAGMA quick_check(1)").fetchone()
            (revision,) = copy.execute("SELECT version_num FROM alembic_version").fetchone()
            (newest,) = copy.execute(_NEWEST).fetchone()
    except (sqlite3.Error, TypeError) as error:
        raise InvalidInput(f"not a copy of a store: {error}", where=str(file)) from error
    if state != "ok":
        raise InvalidInput(f"the copy is damaged: {state}", where=str(file), hint="use another copy")
    if is_before_first(revision):
        raise InvalidInput(
            f"the copy was made before 0.3.0 (schema {revision})",
            where=str(file),
            hint="use it with the version of gpubroker that made it",
        )
    if revision not in REVISIONS:
        raise InvalidInput(
            f"a newer version of gpubroker made it (schema {revision}; this one knows {REVISIONS[-1]})",
            where=str(file),
            hint="upgrade gpubroker first",
        )
    return StoreCopy(file, file.stat().st_size, revision, None if newest is None else from_micros(newest))


def _path_of(database: Database) -> Path:
    if database.path is None:
        raise InvalidInput(
            "the store is in PostgreSQL, which has its own tools", hint="`pg_dump --format=custom` and `pg_restore`"
        )
    return database.path


def _open_read_only(path: Path) -> sqlite3.Connection:
    """Open for reading; creates nothing."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


@contextmanager
def _explain_copy_errors(where: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise
    except (OSError, sqlite3.Error) as error:
        raise StoreProblem(f"the store cannot be copied: {error}", where=str(where)) from error
