"""Making, checking and upgrading the tables."""

import sqlite3
import subprocess
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, Integer, create_engine, text
from sqlmodel import SQLModel

from broker.core.errors import StoreProblem
from broker.core.values.clock import ManualClock
from broker.store import Store, open_store
from broker.store.engine import revisions


def engine_of(url: str) -> Engine:
    return create_engine(url.replace("postgresql:", "postgresql+psycopg:"))


def run_sql(url: str, *statements: str) -> None:
    engine = engine_of(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def test_the_list_of_revisions_is_that_of_the_migrations() -> None:
    scripts = ScriptDirectory(str(Path(revisions.__file__).parent / "migrations"))
    assert tuple(script.revision for script in scripts.walk_revisions())[::-1] == revisions.REVISIONS


def test_a_new_store_has_the_tables_of_the_classes(store: Store, url: str) -> None:
    engine = engine_of(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, SQLModel.metadata) == []
    engine.dispose()


def test_times_and_amounts_have_64_bits() -> None:
    """Those of 32 bits are counts and codes."""
    columns = [column for table in SQLModel.metadata.tables.values() for column in table.c]
    assert {column.name for column in columns if type(column.type) is Integer} == {
        "attempt", "changed", "count", "ended", "gone", "gpus", "nodes", "number", "seen", "seq", "slots", "status",
        "term_months", "tries",
    }  # fmt: skip


@pytest.mark.parametrize("revision", ["0001", "0039"])
def test_a_store_from_before_the_first_release_is_refused(
    store: Store, url: str, clock: ManualClock, revision: str
) -> None:
    run_sql(url, f"UPDATE alembic_version SET version_num = '{revision}'")
    with pytest.raises(StoreProblem, match=r"made before 0\.3\.0; start a new one") as problem:
        open_store(url, clock=clock)
    assert problem.value.exit_code == 2
    if url.startswith("postgresql"):
        assert "set GPUBROKER_STORE to an empty database" in problem.value.hint
        return
    assert problem.value.where == url.removeprefix("sqlite:///")
    store.close()
    subprocess.run(problem.value.hint.split(": ", 1)[1], shell=True, check=True)
    open_store(url, clock=clock).close()
    with sqlite3.connect(Path(url.removeprefix("sqlite:///")).parent / "before-0.3.0" / "store.db") as old:
        assert old.execute("SELECT version_num FROM alembic_version").fetchall() == [(revision,)]
    old.close()


def test_a_store_opens_again_as_it_was(store: Store, url: str, clock: ManualClock) -> None:
    store.set_setting("clock", "x")
    again = open_store(url, clock=clock)
    assert again.setting("clock") == "x"
    again.close()


def test_a_store_from_a_newer_version_is_left_alone(store: Store, url: str, clock: ManualClock) -> None:
    run_sql(
        url,
        "UPDATE alembic_version SET version_num = 'v9999'",
        "UPDATE setting SET value = '41.5' WHERE key = 'gpubroker_version'",
    )
    with pytest.raises(StoreProblem) as problem:
        open_store(url, clock=clock)
    said = str(problem.value)
    assert "41.5" in said
    assert "9999" in said
    assert revisions.REVISIONS[-1] in said
    assert "upgrade gpubroker" in problem.value.hint
    assert problem.value.exit_code == 2


def test_somebody_elses_database_is_left_alone(url: str, clock: ManualClock) -> None:
    run_sql(url, "CREATE TABLE payroll (id INTEGER)")
    with pytest.raises(StoreProblem, match="payroll"):
        open_store(url, clock=clock)


def test_an_upgrade_that_breaks_leaves_nothing_half_made(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks() -> str:
        raise RuntimeError("the power")

    monkeypatch.setattr(revisions, "own_version", breaks)
    with pytest.raises(RuntimeError):
        open_store(url, clock=clock)
    monkeypatch.undo()
    engine = engine_of(url)
    with engine.connect() as connection:
        assert engine.dialect.get_table_names(connection) == []
    engine.dispose()
    open_store(url, clock=clock).close()


def test_a_sqlite_store_is_its_owners_alone(tmp_path: Path, clock: ManualClock) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    opened = open_store(f"sqlite:///{folder / 'store.db'}", clock=clock)
    opened.set_setting("a", "b")
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    opened.close()


def test_a_misspelt_path_does_not_become_a_second_store(tmp_path: Path, clock: ManualClock) -> None:
    with pytest.raises(StoreProblem, match="does not exist"):
        open_store(f"sqlite:///{tmp_path / 'nwe' / 'store.db'}", clock=clock)
    assert list(tmp_path.iterdir()) == []
