"""Checks a resource against the models of Azure's SDK: whether a body written for a fake has only their fields and
types.
"""

import datetime
import typing
from collections.abc import Iterator
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin

from azure.mgmt.compute import models


def faults(model: type, body: Any, at: str = "") -> list[str]:
    """The errors of ``body`` as JSON of that model of azure-mgmt-compute; empty if there are none."""
    return list(_faults(model, body, at or model.__name__))


def _faults(kind: Any, value: Any, at: str) -> Iterator[str]:
    origin = get_origin(kind)
    if origin in (typing.Union, UnionType):
        wrong = [list(_faults(one, value, at)) for one in get_args(kind) if one is not type(None)]
        if value is not None and all(wrong):
            yield from wrong[0]
    elif origin is typing.Literal:
        if value not in get_args(kind):
            yield f"{at}: {value!r} is none of {get_args(kind)}"
    elif origin in (list, dict):
        if not isinstance(value, origin):
            yield f"{at}: {value!r} is no {origin.__name__}"
            return
        for key, inner in value.items() if origin is dict else enumerate(value):
            yield from _faults(get_args(kind)[-1], inner, f"{at}.{key}" if origin is dict else f"{at}[{key}]")
    elif isinstance(kind, type) and hasattr(kind, "_attr_to_rest_field"):
        yield from _faults_in_model(kind, value, at)
    elif not _is_one(kind, value):
        yield f"{at}: {value!r} is no {kind.__name__}"


def _is_one(kind: Any, value: Any) -> bool:
    """Whether the value has this plain type. Raises ValueError for an invalid time."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return value in [one.value for one in kind]
    if kind in (datetime.datetime, datetime.date):
        datetime.datetime.fromisoformat(value)
    elif kind in (str, int, bool, float):
        return isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    return True


def _faults_in_model(kind: Any, value: Any, at: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{at}: {value!r} is no dict"
        return
    fields = _fields(kind)
    for key, inner in value.items():
        if key not in fields:
            yield f"{at}.{key}: Azure has no such field"
        else:
            yield from _faults(fields[key], inner, f"{at}.{key}")


@cache
def _fields(model: Any) -> dict[str, Any]:
    """The types of a model's fields by the names that its JSON has for them."""
    model({})  # its fields are computed when an instance is created
    hints = typing.get_type_hints(model, None, {"_models": models, "datetime": datetime})
    return {field._rest_name: hints[name] for name, field in model._attr_to_rest_field.items() if name in hints}
