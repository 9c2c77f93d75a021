"""Converts values whose fields are the columns of a table to rows and back.

Times are microseconds, money is micro-dollars, enumerations are their values, and collections are JSON.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from broker.core.values.money import Money
from broker.store.schema.row import Row, table_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)


def to_micros(time: datetime) -> int:
    """Microseconds since 1970 UTC. Raises ValueError for a time without a time zone."""
    if time.tzinfo is None:
        raise ValueError(f"a time without a time zone: {time.isoformat()}")
    return (time - _EPOCH) // _TICK


def from_micros(micros: int) -> datetime:
    """The inverse of `to_micros`; always in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


T = TypeVar("T")


def columns_of(row: type[Row], value: object, **overrides: object) -> dict[str, Any]:
    """The row of a value: for each column the argument of that name, else the value's field."""
    names = [column.name for column in table_of(row).c]
    return {name: _to_column(overrides[name] if name in overrides else getattr(value, name)) for name in names}


def value_of(kind: type[T], row: Any, **overrides: object) -> T:
    """The dataclass in a row: for each field the argument of that name, else the column."""
    types = _types(kind)  # type: ignore[arg-type]  # a class is hashable
    return kind(
        **{
            name: overrides[name] if name in overrides else _from_column(field_type, getattr(row, name))
            for name, field_type in types
        }
    )


def _to_column(value: object) -> object:
    match value:
        case datetime():
            return to_micros(value)
        case Money():
            return value.micros
        case Enum():
            return value.value
        case frozenset():
            return json.dumps(sorted(value))
        case tuple():
            return json.dumps(value)
        case Mapping():
            return json.dumps(dict(value), sort_keys=True)
        case _:
            return value


@cache
def _types(kind: Any) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in fields(kind))


def _from_column(kind: Any, cell: Any) -> Any:
    if isinstance(kind, UnionType):  # an optional type
        return None if cell is None else _from_column(get_args(kind)[0], cell)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (frozenset, tuple):
        return origin(_from_column(inner[0], item) for item in json.loads(cell))
    if origin is Mapping:
        return {key: _from_column(inner[1], item) for key, item in json.loads(cell).items()}
    if kind is datetime:
        return from_micros(cell)
    if origin is not None:
        return cell
    return kind(cell) if kind is Money or issubclass(kind, Enum | bool) else cell
