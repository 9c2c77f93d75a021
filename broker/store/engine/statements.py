"""Caches built statements, as building one takes longer than executing it; executes them for many jobs; finds distinct
values of a column, and texts by their beginning.

Statements that PostgreSQL executes without waiting for a round trip after each, and many rows inserted by one
statement, as all other writers wait meanwhile.
"""

import json
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, TypeVar, cast

from sqlalchemy import (
    CTE,
    ColumnElement,
    Connection,
    Dialect,
    Executable,
    SQLColumnExpression,
    Table,
    TextClause,
    bindparam,
    func,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError

from broker.store.schema.row import Row, table_of

StatementT = TypeVar("StatementT", bound=Executable)
MAX_PARAMETERS = 5_000  # of a query on both databases
KeyT = TypeVar("KeyT", bound=Hashable)
ItemT = TypeVar("ItemT")
StatementBuilder = Callable[[Connection | None, KeyT], StatementT]


def cached_statement(
    build: StatementBuilder[KeyT, StatementT], connection: Connection, key: KeyT, *, looks_up: bool
) -> StatementT:
    """The statement that ``build`` builds for ``key``, cached.

    With ``looks_up`` it is built each time, with the connection, as it depends on names in the database.
    """
    return build(connection, key) if looks_up else cast("StatementT", _build_once(build, key))


@lru_cache(maxsize=1024)
def _build_once(build: Callable[[Connection | None, KeyT], Executable], key: KeyT) -> Executable:
    return build(None, key)


def batches(items: Sequence[ItemT], size: int) -> Iterator[Sequence[ItemT]]:
    """The items in parts of at most that size, as a statement's parameters are copied in memory."""
    return (items[first : first + size] for first in range(0, len(items), size))


def in_jobs(column: SQLColumnExpression[str]) -> ColumnElement[bool]:
    """The condition of a statement for `for_jobs`."""
    return column.in_(bindparam("jobs", expanding=True))


def for_jobs(connection: Connection, statement: Executable, job_ids: Sequence[str]) -> Iterator[Any]:
    """The rows of a statement for any number of jobs, in batches of jobs."""
    for batch in batches(job_ids, MAX_PARAMETERS):
        yield from connection.execute(statement, {"jobs": batch})


def one_of(column: SQLColumnExpression[Any], values: Collection[Any]) -> ColumnElement[bool]:
    """Whether a column has one of these values. A single value uses ``=``: SQLAlchemy renders IN at each execution, as
    its list has any length."""
    return column == next(iter(values)) if len(values) == 1 else column.in_(values)


def values_of(column: SQLColumnExpression[Any]) -> CTE:
    """The distinct values of an index's first column, in order, as ``value``; may contain NULL. Repeatedly queries the
    index for the next larger value: the time grows with the number of values, not of rows."""
    smallest = select(func.min(column).label("value"))
    values = smallest.cte("found", recursive=True)
    next_value = select(func.min(column)).where(column > values.c.value).correlate(values).scalar_subquery()
    return values.union_all(select(next_value).where(values.c.value.is_not(None)))


def distinct(connection: Connection, column: SQLColumnExpression[Any]) -> list[Any]:
    """The distinct values of an index's first column, in order, without NULL."""
    return [value for value in connection.scalars(select(values_of(column).c.value)) if value is not None]


_LAST = "\U0010ffff"  # sorts after every other character


def begins_with(
    connection: Connection, column: SQLColumnExpression[str], prefix: str
) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """The conditions that a text begins with that: a range by code points. PostgreSQL has its own operators and index
    class (``text_pattern_ops``) for it, as its default order depends on the locale."""
    lower_operator, upper_operator = (">=", "<") if connection.dialect.name == "sqlite" else ("~>=~", "~<~")
    return column.op(lower_operator, is_comparison=True)(prefix), column.op(upper_operator, is_comparison=True)(
        prefix + _LAST
    )


@contextmanager
def pipeline(connection: Connection) -> Iterator[None]:
    """Send the statements of the block without waiting for their answers.

    At the end of the block, raises `DBAPIError` with the first error among them; then nothing of the transaction is
    kept. Only for statements without rows whose row count is not used. No effect on SQLite.
    """
    driver = _driver(connection)
    if driver is None:
        yield
        return
    try:
        with driver.pipeline():
            yield
    except connection.dialect.loaded_dbapi.Error as error:  # an error that SQLAlchemy has not converted
        raise DBAPIError("one of several pipelined statements", None, error) from error


def in_pipeline(connection: Connection) -> bool:
    """Whether answers arrive later: a statement must then itself fail in cases that the caller would otherwise detect
    by its row count.
    """
    driver = _driver(connection)
    return driver is not None and driver.pgconn.pipeline_status != 0


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection if connection.dialect.name == "postgresql" else None


def insert_rows(connection: Connection, into: type[Row], rows: Sequence[Mapping[str, Any]], conflict: str = "") -> None:
    """Insert rows that all have the same columns, in their order.

    ``conflict``: an ``ON CONFLICT`` clause. PostgreSQL gets them as one JSON document, which takes a tenth of the
    messages and half of the server's time.
    """
    table, names = table_of(into), tuple(rows[0])
    if connection.dialect.name == "postgresql":
        document = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
        connection.execute(_from_document(connection.dialect, table, names, conflict), {"rows": document})
    else:
        connection.execute(_from_values(table, names, conflict), rows)


@cache
def _from_document(dialect: Dialect, table: Table, names: tuple[str, ...], conflict: str) -> TextClause:
    columns = ", ".join(names)
    typed = ", ".join(f"{name} {table.c[name].type.compile(dialect)}" for name in names)
    return text(
        f"INSERT INTO {table.name} ({columns}) SELECT {columns}"  # noqa: S608  # our own names
        f" FROM json_to_recordset(CAST(:rows AS json)) AS given ({typed}) {conflict}"
    )


@cache
def _from_values(table: Table, names: tuple[str, ...], conflict: str) -> TextClause:
    return text(
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES (:{', :'.join(names)}) {conflict}"  # noqa: S608  # our own names
    )
