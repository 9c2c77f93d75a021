"""Caches built statements, as building one takes longer than executing it; executes them for many jobs; finds distinct
values of a column, and texts by their beginning.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

from sqlalchemy import CTE, ColumnElement, Connection, Executable, SQLColumnExpression, bindparam, func, select

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
