"""Checks a store's revision, and makes or upgrades its tables. Alembic is imported only for these."""

from pathlib import Path
from shlex import quote

from sqlalchemy import Connection, delete, insert, inspect, select

from broker.core.errors import StoreProblem
from broker.core.extras import own_version
from broker.store.engine.database import Database
from broker.store.schema.jobs import SettingRow

# Every revision in migrations/versions, oldest first; a test compares this list with the files.
REVISIONS = ("v1",)
_MIGRATIONS = Path(__file__).parent / "migrations"
_VERSION = "gpubroker_version"


def ensure_current(database: Database) -> None:
    """Create or upgrade the store's tables if they are not at the current revision; otherwise costs one query.

    Safe if several processes start at once: an upgrade is one write transaction, so later processes find it done, and
    an interrupted one changes nothing. Raises `StoreProblem` for a store of a newer version, one made before 0.3.0, and
    a foreign database.
    """
    with database.reading() as connection:
        if _stamp(database, connection) == REVISIONS[-1]:
            return
    with database.writing() as connection:
        stamp = _stamp(database, connection)
        if stamp != REVISIONS[-1]:
            _upgrade(connection, stamp)


def is_before_first(stamp: str) -> bool:
    """Whether a version before 0.3.0 made the store. Its revisions were numbers."""
    return stamp.isdigit()


def _stamp(database: Database, connection: Connection) -> str | None:
    """The store's revision; None for an empty database."""
    exists = "SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'"
    if not database.is_sqlite:
        # Not to_regclass: its cache may be older than the wait for the process that created the tables.
        exists = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'alembic_version'"
    if connection.exec_driver_sql(exists).first() is None:
        tables = inspect(connection).get_table_names()
        if tables:
            raise StoreProblem(
                f"this database has other tables and no gpubroker tables ({', '.join(sorted(tables)[:5])})",
                where=database.where,
                hint="give gpubroker a database of its own: set GPUBROKER_STORE",
            )
        return None
    stamp = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if stamp is None or stamp in REVISIONS:
        return stamp
    if is_before_first(stamp):
        raise StoreProblem(
            "the store was made before 0.3.0; start a new one", where=database.where, hint=_new_store_hint(database)
        )
    writer_version = None
    if inspect(connection).has_table("setting"):
        writer_version = connection.scalar(select(SettingRow.value).where(SettingRow.key == _VERSION))
    writer = f"version {writer_version}" if writer_version else "of an unknown version"
    raise StoreProblem(
        f"the store was made by a newer gpubroker ({writer}, schema {stamp}); "
        f"this is version {own_version()}, which knows schemas up to {REVISIONS[-1]}",
        where=database.where,
        hint="upgrade gpubroker, or set GPUBROKER_STORE to another store",
    )


def _new_store_hint(database: Database) -> str:
    """How to start a new store next to one that this version cannot read."""
    if database.path is None:
        return "set GPUBROKER_STORE to an empty database; the old one stays readable by the version that made it"
    folder, archive = database.path.parent, quote(str(database.path.parent / "before-0.3.0"))
    files = f"{quote(str(folder / database.path.name))}*"
    return f"move it away, and the next command makes a new one: mkdir {archive} && mv {files} {archive}"


def _upgrade(connection: Connection, stamp: str | None) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    if stamp is None:  # the first migration makes what the later ones add, too
        command.upgrade(config, REVISIONS[0])
        command.stamp(config, REVISIONS[-1])
    else:
        command.upgrade(config, REVISIONS[-1])
    connection.execute(delete(SettingRow).where(SettingRow.key == _VERSION))
    connection.execute(insert(SettingRow).values(key=_VERSION, value=own_version()))
