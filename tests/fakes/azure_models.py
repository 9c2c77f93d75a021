"""What Azure's SDK knows of a resource: whether a body written for a fake has only fields and types that it has."""

from __future__ import annotations

import datetime
import typing
from collections.abc import Iterator
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin

from azure.mgmt.compute import models


def faults(model: type, body: Any, at: str = "") -> list[str]:
    """What is wrong with ``body`` as JSON of that model of azure-mgmt-compute; empty when nothing is."""
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
    elif origin is list:
        yield from _inside(list, value, at)
        for index, inner in enumerate(value if isinstance(value, list) else ()):
            yield from _faults(get_args(kind)[0], inner, f"{at}[{index}]")
    elif origin is dict:
        yield from _inside(dict, value, at)
        for key, inner in (value if isinstance(value, dict) else {}).items():
            yield from _faults(get_args(kind)[1], inner, f"{at}.{key}")
    elif isinstance(kind, type) and issubclass(kind, Enum):
        if value not in [one.value for one in kind]:
            yield f"{at}: {value!r} is no {kind.__name__}"
    elif kind in (datetime.datetime, datetime.date):
        datetime.datetime.fromisoformat(value)
    elif kind in (str, int, bool, float):
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            yield f"{at}: {value!r} is no {kind.__name__}"
    elif isinstance(kind, type) and hasattr(kind, "_attr_to_rest_field"):
        yield from _inside(dict, value, at)
        fields = _fields(kind)
        for key, inner in (value if isinstance(value, dict) else {}).items():
            if key not in fields:
                yield f"{at}.{key}: Azure has no such field"
            else:
                yield from _faults(fields[key], inner, f"{at}.{key}")


def _inside(kind: type, value: Any, at: str) -> Iterator[str]:
    if not isinstance(value, kind):
        yield f"{at}: {value!r} is no {kind.__name__}"


@cache
def _fields(model: Any) -> dict[str, Any]:
    """The types of a model's fields by the names that its JSON has for them."""
    model({})  # its fields are worked out when one is made
    hints = typing.get_type_hints(model, None, {"_models": models, "datetime": datetime})
    return {field._rest_name: hints[name] for name, field in model._attr_to_rest_field.items() if name in hints}
