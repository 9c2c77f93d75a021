"""The base of every result, and how its values are written in JSON: money as decimal strings in USD, times in ISO 8601
UTC, durations in seconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainSerializer, WithJsonSchema


class Result(BaseModel):
    """A result: never changed, and without fields that its class does not name."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def document(self) -> dict[str, Any]:
        """The JSON document, as Python values."""
        return self.model_dump(mode="json", by_alias=True)


def is_none(value: object) -> bool:
    """Of a field that a document has only where it was asked for."""
    return value is None


def moment_text(at: datetime) -> str:
    """``2026-11-01T12:00:00Z``"""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def seconds_of(time: timedelta) -> int | float:
    """A duration in seconds, whole where it is."""
    seconds = time.total_seconds()
    return int(seconds) if seconds == int(seconds) else seconds


def figure_of(number: float) -> float | None:
    """A number without the digits that only rounding errors fill. JSON has no infinity: null stands for it."""
    return round(number, 9) if isfinite(number) else None


Moment = Annotated[
    datetime,
    PlainSerializer(moment_text, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]
Seconds = Annotated[
    timedelta,
    PlainSerializer(seconds_of, when_used="json"),
    WithJsonSchema({"type": "number", "description": "seconds"}, mode="serialization"),
]
Figure = Annotated[
    float,
    PlainSerializer(figure_of, when_used="json"),
    WithJsonSchema({"type": ["number", "null"]}, mode="serialization"),
]
