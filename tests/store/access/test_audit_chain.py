"""The chain of the audit log: whatever somebody does to its rows in the database is seen."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, delete, insert, select, update

from broker.core.access.api_tokens import AuditRecord
from broker.core.values.clock import ManualClock
from broker.store import Store, open_store
from broker.store.access.access import AccessReader, AuditChain, _digest
from broker.store.schema.access import AuditLogRow
from broker.store.schema.jobs import SettingRow
from broker.store.schema.row import table_of
from tests.empty_store import empty_store

LINES = 8
NUMBERS = st.integers(1, LINES)
TEXTS = [column.name for column in table_of(AuditLogRow).c if column.name not in ("number", "at")]


@pytest.fixture(scope="module")
def unlocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with a log, and without the triggers that refuse to change it."""
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    store = open_store(empty_store(tmp_path_factory.mktemp("log") / "store.db"), clock=clock)
    with store.access.writing() as tx:
        for number in range(1, LINES + 1):
            tx.log(AuditRecord(clock.now(), "ann", "api 192.0.2.1", "people.role", f"bob-{number % 3}"))
    with store._database.writing() as connection:
        for name in ("no_update", "no_delete", "no_replace"):
            connection.exec_driver_sql(f"DROP TRIGGER audit_log_{name}")
    yield store
    store.close()


class Undo(Exception):
    """Ends a transaction without a trace."""


def chain_after(store: Store, act: Callable[[Connection], object], noted: str = "") -> AuditChain:
    """How far the log holds after an act that is then undone."""
    with suppress(Undo), store._database.writing() as connection:
        act(connection)
        chain = AccessReader(connection).audit_chain(noted)
        raise Undo
    return chain


def change(line: int, **values: Any) -> Callable[[Connection], object]:
    return lambda connection: connection.execute(update(AuditLogRow).where(AuditLogRow.number == line).values(**values))


def test_a_log_that_nobody_touched_holds(unlocked: Store) -> None:
    chain = chain_after(unlocked, lambda _: None)
    assert (chain.lines, chain.intact, chain.is_noted) == (LINES, True, True)
    assert chain_after(unlocked, lambda _: None, chain.digest).is_noted


@given(NUMBERS, st.sampled_from(TEXTS), st.text())
def test_a_changed_text_is_seen(unlocked: Store, number: int, column: str, value: str) -> None:
    with unlocked._database.reading() as connection:
        before = connection.scalar(select(getattr(AuditLogRow, column)).where(AuditLogRow.number == number))
    chain = chain_after(unlocked, change(number, **{column: value}))
    assert (chain.lines, chain.intact) == ((LINES, True) if value == before else (number - 1, False))


@given(NUMBERS, st.integers(-(2**63), 2**63 - 1))
def test_a_changed_time_is_seen(unlocked: Store, number: int, at: int) -> None:
    chain = chain_after(unlocked, change(number, at=at))
    assert (chain.lines, chain.intact) == (number - 1, False)


@given(st.sets(NUMBERS, min_size=1))
def test_deleted_lines_are_seen(unlocked: Store, numbers: set[int]) -> None:
    chain = chain_after(unlocked, lambda c: c.execute(delete(AuditLogRow).where(AuditLogRow.number.in_(numbers))))
    assert (chain.lines, chain.intact) == (min(numbers) - 1, False)


@given(NUMBERS, st.integers(-LINES, 2 * LINES))
def test_a_line_in_another_place_is_seen(unlocked: Store, number: int, place: int) -> None:
    """Two lines swap their places, or one moves to a free one."""

    def swap(connection: Connection) -> None:
        for old, new in ((place, 1000), (number, place), (1000, number)):
            change(old, number=new)(connection)

    assert chain_after(unlocked, swap).intact == (number == place)


def test_a_log_written_anew_lacks_the_noted_digest(unlocked: Store) -> None:
    noted = chain_after(unlocked, lambda _: None).digest
    with unlocked._database.reading() as connection:
        rows = [row._asdict() for row in connection.execute(select(AuditLogRow))]

    def write_anew(connection: Connection) -> None:
        connection.execute(delete(AuditLogRow))
        previous = ""
        for row in rows:
            row["person"] = "eve"
            row["digest"] = previous = _digest(previous, row)
            connection.execute(insert(AuditLogRow).values(**row))
        connection.execute(update(SettingRow).where(SettingRow.key == "audit_digest").values(value=previous))

    chain = chain_after(unlocked, write_anew, noted)
    assert (chain.intact, chain.is_noted) == (True, False)
