"""JSON documents: money as decimal strings in USD, times as ISO 8601 in UTC, durations in seconds, enums by value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from broker.app.results.values import Result, figure_of, moment_text, seconds_of
from broker.core.values.money import Money


def to_json(document: Any) -> str:
    """The text of a document."""
    return json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """The value in JSON types. Raises TypeError for types without a defined conversion."""
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | str():
            return value
        case float():
            return figure_of(value)
        case Result():
            return plain(value.document())
        case Money():
            return value.as_json()
        case datetime():
            return moment_text(value)
        case timedelta():
            return seconds_of(value)
        case Path():
            return str(value)
        case Mapping():
            return {str(plain(key)): plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            raise TypeError(f"cannot convert {type(value).__name__} to JSON")
