"""Making, checking and upgrading the tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, text

from broker.core.errors import StoreProblem
from broker.core.values.clock import ManualClock
from broker.store import Store, open_store
from broker.store.engine import schema
from tests.store.plain_columns import every_table


def engine_of(url: str) -> Engine:
    return create_engine(url.replace("postgresql:", "postgresql+psycopg:"))


def run_sql(url: str, *statements: str) -> None:
    engine = engine_of(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def test_the_list_of_revisions_is_that_of_the_migrations() -> None:
    scripts = ScriptDirectory(str(Path(schema.__file__).parent / "migrations"))
    assert tuple(script.revision for script in scripts.walk_revisions())[::-1] == schema.REVISIONS


def test_the_migrations_make_the_tables_that_the_code_knows(store: Store, url: str) -> None:
    engine = engine_of(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, every_table()) == []
    engine.dispose()


def test_a_store_opens_again_as_it_was(store: Store, url: str, clock: ManualClock) -> None:
    store.set_setting("clock", "x")
    again = open_store(url, clock=clock)
    assert again.setting("clock") == "x"
    again.close()


def test_a_store_from_a_newer_version_is_left_alone(store: Store, url: str, clock: ManualClock) -> None:
    run_sql(
        url,
        "UPDATE alembic_version SET version_num = '9999'",
        "UPDATE setting SET value = '41.5' WHERE key = 'gpubroker_version'",
    )
    with pytest.raises(StoreProblem) as problem:
        open_store(url, clock=clock)
    said = str(problem.value)
    assert "41.5" in said
    assert "9999" in said
    assert schema.REVISIONS[-1] in said
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

    monkeypatch.setattr(schema, "own_version", breaks)
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


def test_opening_a_current_store_imports_no_migration_tool(tmp_path: Path, clock: ManualClock) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    open_store(url, clock=clock).close()
    program = (
        "import sys\n"
        "from broker.core.values.clock import SystemClock\n"
        "from broker.store import open_store\n"
        f"open_store({url!r}, clock=SystemClock()).offers()\n"
        "print(sorted({'alembic', 'filelock', 'psycopg', 'httpx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
