"""One database: connections, transactions, and errors with advice.

On PostgreSQL each transaction sets its own isolation level, regardless of defaults of the role, the database or the
server. A writer runs at READ COMMITTED and first waits for its turn: its later statements see everything that earlier
writers committed. At a higher level, its snapshot would be from before the wait, and two writers could spend the same
money. A reader runs at REPEATABLE READ: one snapshot for all its statements.

SQLite runs with ``synchronous=FULL``: a commit is on the disk before an engine is called, so a power cut loses no
launch. This costs one fsync per commit.
"""

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum, unique
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from broker.core.errors import CommitUnknown, MissingExtra, StoreProblem


@unique
class AdvisoryLock(IntEnum):
    """The keys of PostgreSQL's advisory locks, arbitrary constants; two uses with the same key would wait for each
    other. For each member of `LeaderRole` there is one of the same name.
    """

    WRITE = 0x67707562
    JOBS = 0x67706C64
    PRICES = 0x67706C65
    LOCAL = 0x67706C66
    SWEEP = 0x67706C67
    PURCHASES = 0x67706C68
    CAPACITY = 0x67706C69
    RETENTION = 0x67706C6A
    OUTSIDE = 0x67706C6B
    SNAPSHOTS = 0x67706C6D


BUSY_SECONDS = 15.0  # how long a write waits for other writers before it gives up
_WAL_PAUSE = 0.02
# SQLite's own busy handler sleeps longer each time, up to 0.1 s: among many writers, the longest-waiting one gets the
# lock least often. With short random pauses all have the same chance.
_TURN_PAUSE = (0.001, 0.004)
_TRUSTED_SECONDS = 2.0  # for so many seconds after its last use, a connection to PostgreSQL is not checked
_CONNECT: dict[str, Any] = {"connect_timeout": 10, "autocommit": True}  # seconds; for autocommit, see `_BEGIN_READING`
_WAL_LIMIT = 64 * 1024 * 1024
# Connections to PostgreSQL are in autocommit mode, and these statements begin a transaction in one round trip together
# with its first statements. The driver's own BEGIN would take another round trip, while all writers wait. READ WRITE is
# left to the defaults: an administrator, or a full disk, may forbid writing.
_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_BEGIN_WRITING = (
    "BEGIN ISOLATION LEVEL READ COMMITTED;"
    f" SELECT set_config('lock_timeout', '{int(BUSY_SECONDS * 1000)}ms', true),"
    f" pg_advisory_xact_lock({AdvisoryLock.WRITE.value})"
)


class Database:
    """A SQLite file or a PostgreSQL database. Thread-safe; not for use across a fork."""

    def __init__(self, url: str) -> None:
        """Raises `StoreProblem` for an unsupported URL, and `MissingExtra` without the driver."""
        self.url = _parse(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.path = Path(self.url.database or "") if self.is_sqlite else None
        self.where = str(self.path) if self.path else self.url.render_as_string(hide_password=True)
        if self.path:
            try:
                _create_private(self.path)
            except OSError as error:
                raise explain(error, self.where) from error
        try:
            self.engine = _sqlite_engine(self.url) if self.is_sqlite else _postgres_engine(self.url)
        except ModuleNotFoundError as error:
            raise MissingExtra("postgres", "a PostgreSQL store") from error

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent snapshot; read-only on PostgreSQL. Raises `StoreProblem`."""
        with explain_errors(self.where), self.engine.connect() as connection, connection.begin():
            if not self.is_sqlite:
                connection.exec_driver_sql(_BEGIN_READING)
            yield connection

    @contextmanager
    def asking(self) -> Iterator[Connection]:
        """A connection for one query: each statement is a snapshot of its own, so PostgreSQL needs no transaction, nor
        the round trips to begin and end it. Raises `StoreProblem`.
        """
        if self.is_sqlite:
            with self.reading() as connection:
                yield connection
            return
        with explain_errors(self.where), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that overlaps no other write transaction of this store.

        Raises `StoreProblem`, in which case nothing was written; or `CommitUnknown` if the answer to its commit was
        lost: it may have been committed.
        """
        committing = False
        with explain_errors(self.where), self.engine.connect() as connection:
            connection = connection.execution_options(gpubroker_writes=True)
            try:
                with connection.begin():
                    if not self.is_sqlite:
                        connection.exec_driver_sql(_BEGIN_WRITING)
                    yield connection
                    committing = True
            except DBAPIError as error:
                if committing and _is_outcome_unknown(error):
                    raise CommitUnknown(
                        f"the connection was lost while the transaction was committed ({error.orig})",
                        where=self.where,
                        hint="check whether it took effect before trying again",
                    ) from error
                raise

    @contextmanager
    def apart(self) -> Iterator[Connection]:
        """A separate connection to PostgreSQL for long use; each statement is its own transaction."""
        engine = create_engine(self.url, poolclass=NullPool, connect_args=_CONNECT)
        with explain_errors(self.where), engine.connect() as connection:
            yield connection.execution_options(isolation_level="AUTOCOMMIT")

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


class _Undo(Exception):
    """Rolls the transaction back."""


class RehearsalDatabase(Database):
    """One transaction of ``before`` that contains all reads and writes. For one thread."""

    def __init__(self, before: Database, connection: Connection) -> None:
        self.url, self.is_sqlite, self.path, self.where = before.url, before.is_sqlite, before.path, before.where
        self._connection = connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        yield self._connection

    @contextmanager
    def asking(self) -> Iterator[Connection]:
        yield self._connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self._connection.begin_nested():
            yield self._connection

    @contextmanager
    def apart(self) -> Iterator[Connection]:
        """The same connection: nothing in a rehearsal needs one beyond it."""
        yield self._connection

    def close(self) -> None:
        """Does nothing: the connection belongs to the original database."""


@contextmanager
def rehearse(database: Database) -> Iterator[Database]:
    """A database during the block; its writes are always rolled back at the end. Other writers wait meanwhile, so keep
    it short."""
    with suppress(_Undo), database.writing() as connection:
        yield RehearsalDatabase(database, connection)
        raise _Undo


def is_missing(url: str) -> bool:
    """Whether the URL names a SQLite file that does not exist. Raises `StoreProblem` as `Database`."""
    parsed = _parse(url)
    return parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").exists()


def _parse(url: str) -> URL:
    expected = "expected sqlite:///PATH or postgresql://USER@HOST/DATABASE"
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, ValueError):
        # The URL is not shown: it may contain a password.
        raise StoreProblem(f"the store's URL is invalid; {expected}", hint="set GPUBROKER_STORE") from None
    if backend == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise StoreProblem(
                "a store in memory is lost with the process that made it", hint="give a file: sqlite:///PATH"
            )
        return parsed
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise StoreProblem(f"unsupported database {backend}; {expected}", hint="set GPUBROKER_STORE")


def _create_private(path: Path) -> None:
    """Create the file with mode 0600; SQLite gives its -wal and -shm files the same mode.

    Creates no folder, so that a misspelled path does not create a second, empty store. Raises `StoreProblem`.
    """
    if str(path).startswith("file:") or path.exists():
        return
    if not path.parent.is_dir():
        raise StoreProblem(
            f"the folder {path.parent} does not exist",
            where=str(path),
            hint="make it first, or correct GPUBROKER_STORE",
        )
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _sqlite_engine(url: URL) -> Engine:
    connect_args = {} if "timeout" in url.query else {"timeout": BUSY_SECONDS}
    patience = float(str(url.query.get("timeout", BUSY_SECONDS)))
    engine = create_engine(url, connect_args=connect_args)

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # the driver must not begin transactions
        _use_wal(connection)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute(f"PRAGMA journal_size_limit={_WAL_LIMIT}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        is_writing = connection.get_execution_options().get("gpubroker_writes")
        if is_writing:
            _begin_exclusive(connection, patience)
        else:
            connection.exec_driver_sql("BEGIN")

    return engine


def _begin_exclusive(connection: Connection, patience: float) -> None:
    """Begin a write transaction when no other one is active. Raises the driver's error after ``patience`` seconds."""
    driver = connection.connection.driver_connection
    assert driver is not None
    deadline = time.monotonic() + patience
    driver.execute("PRAGMA busy_timeout=0")
    try:
        while True:
            try:
                driver.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    break
            if time.monotonic() >= deadline:
                break
            time.sleep(random.uniform(*_TURN_PAUSE))  # noqa: S311  # no secret
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # repeated through SQLAlchemy, which raises its own error
    finally:
        driver.execute(f"PRAGMA busy_timeout={int(patience * 1000)}")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL, with retries: SQLite does not wait if two processes switch a new file at once."""
    for tries_left in reversed(range(int(BUSY_SECONDS / _WAL_PAUSE))):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or not tries_left:
                raise
        time.sleep(_WAL_PAUSE)


def _postgres_engine(url: URL) -> Engine:
    """An engine that pings a connection before reuse, unless it was used a moment ago: a submission takes several
    transactions in a row, and each ping is a round trip."""
    # Every transaction ends in its own block, so connections need no rollback on return.
    engine = create_engine(url, connect_args=_CONNECT, pool_reset_on_return=None)

    @event.listens_for(engine, "checkout")
    def check(connection: DBAPIConnection, record: ConnectionPoolEntry, _: object) -> None:
        used_at = record.info.get("used_at")
        if used_at is None or time.monotonic() - used_at < _TRUSTED_SECONDS:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise DisconnectionError("the connection is gone") from error  # the pool opens another one

    @event.listens_for(engine, "checkin")
    def mark_used(_: object, record: ConnectionPoolEntry) -> None:
        record.info["used_at"] = time.monotonic()

    return engine


@contextmanager
def explain_errors(where: str) -> Iterator[None]:
    """Convert database errors to `StoreProblem` with advice. Other exceptions pass.

    A Ctrl-C during a commit remains a KeyboardInterrupt: SQLAlchemy asserts in a ``finally`` that the commit is done,
    and the failed assertion would replace it.
    """
    try:
        yield
    except AssertionError as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise
    except DBAPIError as error:
        raise explain(error.orig or error, where) from error


def _is_outcome_unknown(error: DBAPIError) -> bool:
    """Whether an error of a commit leaves its result unknown.

    Any other error is the database's answer that nothing was committed.
    """
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
    return error.connection_invalidated or code == sqlite3.SQLITE_IOERR


_LOCKED = ("another process has been writing to the store for too long", "try again; see which process holds it")
_FULL = ("the disk is full", "free some space, then try again: nothing that was committed is lost")
_READ_ONLY = ("the store cannot be written to", "check the owner and mode of the file and its folder")
_DAMAGED = ("the store's file is damaged", "restore a backup, or rescue it with `sqlite3 FILE .recover`")
_NOT_A_STORE = ("the file is not a gpubroker store", "point GPUBROKER_STORE (or GPUBROKER_HOME) elsewhere")
_CANNOT_OPEN = (
    "the store's file cannot be opened",
    "check that its folder exists and that both are yours; several people share a store on PostgreSQL",
)
_IO = ("reading or writing the store's file failed", "check the disk, its quota and its free space")

_SQLITE = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _NOT_A_STORE,
    sqlite3.SQLITE_CANTOPEN: _CANNOT_OPEN,
    sqlite3.SQLITE_PERM: _CANNOT_OPEN,
    sqlite3.SQLITE_IOERR: _IO,
}
_RESTARTS = ("the database is starting or stopping, or ended the connection", "try again in a moment")
# Advice by SQLSTATE or its beginning; the first two characters are the class.
_POSTGRES = {
    "55P03": _LOCKED,
    "53100": _FULL,
    "25006": (
        "the store cannot be written to",
        "default_transaction_read_only is on for the role, the database or the server, or the server is a standby",
    ),
    "57014": (
        "a statement took too long for the database",
        "set a longer statement_timeout for the role; waiting for other writers may take 15 s",
    ),
    "25P03": (
        "a transaction was idle for too long for the database",
        "set a longer idle_in_transaction_session_timeout for the role; nothing of the transaction was kept",
    ),
    "25P04": (
        "a transaction took too long for the database",
        "set a longer transaction_timeout for the role; nothing of the transaction was kept",
    ),
    "53300": ("the database accepts no more connections", "raise max_connections, or run fewer processes at once"),
    "57P": _RESTARTS,
    "28": ("the database refuses the login", "check user and password of GPUBROKER_STORE"),
    "3D": ("there is no such database", "create it first: createdb NAME"),
    "42501": ("the database user may not do this", "grant it CREATE, SELECT and INSERT on the schema"),
}


def explain(error: BaseException, where: str) -> StoreProblem:
    """The `StoreProblem` for a database or file error: one sentence, with advice."""
    reason: Any = str(error).splitlines()[0] if str(error) else type(error).__name__
    entry = None
    if isinstance(error, sqlite3.Error):
        entry = _SQLITE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    elif isinstance(error, OSError):
        entry = _CANNOT_OPEN
    else:
        state = getattr(error, "sqlstate", None) or ""
        entry = _POSTGRES.get(state) or _POSTGRES.get(state[:3]) or _POSTGRES.get(state[:2])
        if entry is None and not state:
            entry = ("the database cannot be reached", "check that it runs and that GPUBROKER_STORE is correct")
    problem, advice = entry or ("the store refused", "")
    return StoreProblem(f"{problem} ({reason})", where=where, hint=advice)


P = ParamSpec("P")
R = TypeVar("R")


class HasConnection(Protocol):
    """A snapshot of the store, or a transaction."""

    _connection: Connection


def query(function: Callable[Concatenate[Connection, P], R]) -> Callable[Concatenate[HasConnection, P], R]:
    """The function as a method, called with the object's connection."""

    def method(self: HasConnection, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return function(self._connection, *args, **kwargs)

    method.__doc__ = function.__doc__
    return method


class HasDatabase(Protocol):
    """Has a database, for transactions of its own."""

    _database: Database


def reads(
    function: Callable[Concatenate[Connection, P], R], *, once: bool = False
) -> Callable[Concatenate[HasDatabase, P], R]:
    """The function as a method, called with a snapshot of the object's database. ``once``: it makes a single query."""

    def method(self: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._database.asking() if once else self._database.reading() as connection:
            return function(connection, *args, **kwargs)

    method.__doc__ = function.__doc__
    return method
