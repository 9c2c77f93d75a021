"""What a person is told when the database cannot be used."""

import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.event import listen, remove

from broker.core.errors import CommitUnknown, MissingExtra, StoreProblem
from broker.core.values.clock import ManualClock
from broker.store import Store, open_store
from broker.store.engine import database
from broker.store.engine.database import Database


def problem(url: str, clock: ManualClock) -> StoreProblem:
    with pytest.raises(StoreProblem) as found:
        open_store(url, clock=clock)
    assert found.value.hint
    return found.value


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("nonsense", "is invalid"),
        ("", "is invalid"),
        ("nosuch://x/y", "nosuch"),
        ("mysql://ada:hunter2@h/x", "mysql"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
    ],
)
def test_a_url_that_is_none_of_ours(url: str, says: str, clock: ManualClock) -> None:
    told = problem(url, clock)
    assert says in str(told)
    assert "hunter2" not in f"{told} {told.hint}"


def test_a_file_that_cannot_be_made(clock: ManualClock) -> None:
    assert "cannot be opened" in str(problem("sqlite:////proc/store.db", clock))


def test_a_file_that_is_no_database(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "store.db"
    path.write_text("dear diary " * 100)
    told = problem(f"sqlite:///{path}", clock)
    assert "not a gpubroker store" in str(told)
    assert str(path) in str(told)


def test_a_damaged_file(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "store.db"
    store = open_store(f"sqlite:///{path}", clock=clock)
    store.close()
    raw = bytearray(path.read_bytes())
    raw[100:] = b"\xff" * (len(raw) - 100)
    path.write_bytes(raw)
    assert "damaged" in str(problem(f"sqlite:///{path}", clock))


def test_a_store_that_may_only_be_read(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "store.db"
    open_store(f"sqlite:///{path}", clock=clock).close()
    store = open_store(f"sqlite:///file:{path}?mode=ro&uri=true", clock=clock)
    assert store.offers() == []
    with pytest.raises(StoreProblem, match="cannot be written"):
        store.set_setting("a", "b")
    store.close()


def test_a_store_that_stays_locked(url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    monkeypatch.setattr(database, "_BEGIN_WRITING", database._BEGIN_WRITING.replace("15000ms", "50ms"))
    one, other = open_store(url, clock=clock), open_store(url, clock=clock)
    with one.writing(), pytest.raises(StoreProblem, match="another process"):
        other.set_setting("a", "b")
    other.set_setting("a", "b")
    one.close()
    other.close()


def test_a_full_disk(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "x.db")
    connection.execute("CREATE TABLE t (x)")
    connection.execute("PRAGMA max_page_count = 2")
    with pytest.raises(sqlite3.Error) as found:
        connection.executemany("INSERT INTO t VALUES (?)", [("x" * 4000,)] * 9)
    told = database.explain(found.value, "x.db")
    assert "disk is full" in str(told)
    assert "free some space" in told.hint


def test_a_commit_without_an_answer_may_be_on_record(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    dialect = store._database.engine.dialect
    commit = dialect.do_commit

    def without_an_answer(connection: Any) -> None:
        if dialect.name == "postgresql":
            backend = connection.driver_connection.info.backend_pid
            with store._database.apart() as other:
                other.exec_driver_sql("SELECT pg_terminate_backend(%s, 10000)", (backend,))
            commit(connection)
        else:
            commit(connection)
            raise told(sqlite3.SQLITE_IOERR_FSYNC)

    monkeypatch.setattr(dialect, "do_commit", without_an_answer)
    with pytest.raises(CommitUnknown, match="while the transaction was committed"):
        store.set_setting("a", "b")


def test_a_commit_that_the_database_refuses_is_not_on_record(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: object) -> None:
        raise told(sqlite3.SQLITE_FULL)

    store = open_store(f"sqlite:///{tmp_path}/store.db", clock=clock)
    monkeypatch.setattr(store._database.engine.dialect, "do_commit", refused)
    with pytest.raises(StoreProblem, match="disk is full") as found:
        store.set_setting("a", "b")
    assert not isinstance(found.value, CommitUnknown)
    store.close()


def told(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("of the driver")
    error.sqlite_errorcode = code
    return error


def test_the_callers_own_errors_pass_unchanged(store: Store) -> None:
    with pytest.raises(FileNotFoundError), store.writing():
        Path("/nowhere").read_text()


def test_postgresql_without_its_driver(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match="postgres"):
        open_store("postgresql://ada@localhost/x", clock=clock)


@pytest.mark.system
def test_a_postgresql_server_that_does_not_answer(clock: ManualClock) -> None:
    pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
    told = problem("postgresql://ada:hunter2@127.0.0.1:1/x", clock)
    assert "cannot be reached" in str(told)
    assert "hunter2" not in f"{told} {told.hint}"


def test_ctrl_c_within_a_commit_stays_one(tmp_path: Path, clock: ManualClock) -> None:
    def pressed(_: object) -> None:
        raise KeyboardInterrupt

    opened = Database(f"sqlite:///{tmp_path}/store.db")
    listen(opened.engine, "commit", pressed)
    with pytest.raises(KeyboardInterrupt), opened.reading():
        pass
    remove(opened.engine, "commit", pressed)
    with opened.reading() as connection:  # and the connection is fit for use
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    opened.close()
