"""Copies of a store that other processes write to, and of one that is damaged."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from broker.core.errors import StoreProblem
from broker.core.values.clock import ManualClock
from broker.store import open_store

MANY = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "


def filled(path: Path, rows: int) -> None:
    with closing(sqlite3.connect(path)) as writer, writer:
        writer.execute("CREATE TABLE filling (content)")
        writer.execute(f"{MANY} INSERT INTO filling SELECT randomblob(1000) FROM n", (rows,))


@pytest.mark.system
def test_a_copy_gets_done_while_others_write_all_the_time(tmp_path: Path, clock: ManualClock) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", clock=clock)
    filled(tmp_path / "store.db", 50_000)
    over = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None, timeout=240)) as writer:
            while not over.wait(0.001):
                writer.execute("INSERT INTO filling VALUES (1)")

    copied = threading.Event()

    def copy() -> None:
        store.copy_to(tmp_path / "copy.db")
        copied.set()

    threads = [threading.Thread(target=write), threading.Thread(target=copy, daemon=True)]
    for thread in threads:
        thread.start()
    done = copied.wait(240)
    over.set()
    for thread in threads:
        thread.join()
    assert done
    store.close()


def test_a_restore_does_not_wait_for_ever_for_another_writer(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.store.engine.copies.BUSY_SECONDS", 0.2)
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", clock=clock)
    store.copy_to(tmp_path / "copy.db")
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreProblem, match="another process writes"):
            store.restore_from(tmp_path / "copy.db")
        writer.execute("ROLLBACK")
    store.restore_from(tmp_path / "copy.db")
    store.close()


def test_it_is_said_of_the_store_that_it_is_damaged(tmp_path: Path, clock: ManualClock) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", clock=clock)
    filled(tmp_path / "store.db", 500)
    store.close()
    with (tmp_path / "store.db").open("r+b") as file:
        file.seek(-200_000, 2)
        file.write(b"\xff" * 100_000)
    with pytest.raises(StoreProblem, match="the store is damaged") as raised:
        store.copy_to(tmp_path / "copy.db")
    assert raised.value.where == str(tmp_path / "store.db")
    assert not (tmp_path / "copy.db").exists()
    store.close()
