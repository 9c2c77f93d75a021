"""Converts values whose fields are the columns of a table to rows and back.

Times are microseconds, money is micro-dollars, enumerations are their values, and collections are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from broker.core.values.money import Money
from broker.store.engine.times import from_micros, to_micros
from broker.store.schema.row import Row, table_of

T = TypeVar("T")


def columns_of(row: type[Row], value: object, **more: object) -> dict[str, Any]:
    """The row of a value: for each column the argument of that name, else the value's field."""
    names = [column.name for column in table_of(row).c]
    return {name: _stored(more[name] if name in more else getattr(value, name)) for name in names}


def value_of(kind: type[T], row: Any, **more: object) -> T:
    """The dataclass in a row: for each field the argument of that name, else the column."""
    types = _types(kind)  # type: ignore[arg-type]  # a class is hashable
    return kind(**{name: more[name] if name in more else _read(of, getattr(row, name)) for name, of in types})


def _stored(value: object) -> object:
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


def _read(of: Any, stored: Any) -> Any:
    if isinstance(of, UnionType):  # an optional type
        return None if stored is None else _read(get_args(of)[0], stored)
    origin, inner = get_origin(of), get_args(of)
    if origin in (frozenset, tuple):
        return origin(_read(inner[0], one) for one in json.loads(stored))
    if origin is Mapping:
        return {key: _read(inner[1], one) for key, one in json.loads(stored).items()}
    if of is datetime:
        return from_micros(stored)
    if origin is not None:
        return stored
    return of(stored) if of is Money or issubclass(of, Enum | bool) else stored
