"""Checks a store's schema and upgrades it. Alembic is imported only for an upgrade."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from broker.core.errors import StoreProblem
from broker.store.engine.database import Database

# Every revision in migrations/versions, oldest first; a test compares this list with the files.
REVISIONS = (
    "0001",
    "0002",
    "0003",
    "0004",
    "0005",
    "0006",
    "0007",
    "0010",
    "0011",
    "0012",
    "0013",
    "0014",
    "0015",
    "0016",
    "0017",
    "0018",
    "0019",
    "0020",
    "0021",
    "0022",
    "0023",
    "0024",
    "0025",
    "0026",
    "0027",
    "0028",
    "0029",
    "0030",
    "0031",
    "0032",
    "0033",
    "0037",
    "0039",
)
_MIGRATIONS = Path(__file__).parent / "migrations"


def ensure_current(database: Database) -> None:
    """Create or upgrade the store's tables if they are not at the current revision; otherwise costs one query.

    Safe if several processes start at once: an upgrade is one write transaction, so later processes find it done, and
    an interrupted one changes nothing. Raises `StoreProblem` for a store of a newer version and for a foreign database.
    """
    with database.reading() as connection:
        if _stamp(database, connection) == REVISIONS[-1]:
            return
    with database.writing() as connection:
        if _stamp(database, connection) != REVISIONS[-1]:
            _upgrade(connection)


def own_version() -> str:
    """The installed version of gpubroker."""
    try:
        return version("gpubroker")
    except PackageNotFoundError:
        return "not installed"


def _stamp(database: Database, connection: Connection) -> str | None:
    """The store's revision; None for an empty database."""
    exists = "SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'"
    if not database.is_sqlite:
        # Not to_regclass: its cache may be older than the wait for the process that created the tables.
        exists = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'alembic_version'"
    if connection.exec_driver_sql(exists).first() is None:
        others = inspect(connection).get_table_names()
        if others:
            raise StoreProblem(
                f"this database holds other tables and none of ours ({', '.join(sorted(others)[:5])})",
                where=database.where,
                hint="give gpubroker a database of its own: set GPUBROKER_STORE",
            )
        return None
    stamp = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if stamp is None or stamp in REVISIONS:
        return stamp
    wrote = "of an unknown version"
    if inspect(connection).has_table("setting"):
        found = connection.exec_driver_sql("SELECT value FROM setting WHERE key = 'gpubroker_version'").scalar()
        wrote = f"version {found}" if found else wrote
    raise StoreProblem(
        f"the store was made by a newer gpubroker ({wrote}, schema {stamp}); "
        f"this is version {own_version()}, which knows schemas up to {REVISIONS[-1]}",
        where=database.where,
        hint="upgrade gpubroker, or set GPUBROKER_STORE to another store",
    )


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    connection.execute(text("DELETE FROM setting WHERE key = 'gpubroker_version'"))
    connection.execute(
        text("INSERT INTO setting (key, value) VALUES ('gpubroker_version', :version)"), {"version": own_version()}
    )
