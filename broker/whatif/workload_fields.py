"""Parsers of the fields of a workload file, with their errors."""

from __future__ import annotations

import re
from collections.abc import Sized
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from broker.core.errors import UnknownName
from broker.core.market.offers import CapacityType
from broker.core.values.accelerators import canonical
from broker.core.values.units import split_machine

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}")
_HOURS = re.compile(r"(\d{1,2})\s*-\s*(\d{1,2})")
_LEAST_REPRICE = timedelta(minutes=5)  # each price change is stored, and all decisions are made again


class WorkloadPart(BaseModel):
    """Base of the parts of a workload file: immutable, unknown keys rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def _machine(value: object) -> tuple[str, int]:
    name, count = split_machine(value)
    try:
        return canonical(name), count
    except UnknownName as error:
        raise ValueError(str(error)) from error


def _capacity(value: object) -> CapacityType:
    try:
        return CapacityType(value)  # type: ignore[arg-type]  # anything but a known one raises ValueError
    except ValueError:
        raise ValueError(f"expected owned, reserved, on-demand or spot; got {value!r}") from None


def _share(value: object) -> float:
    text = str(value).strip().removesuffix("%")
    try:
        found = float(text) / 100
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1 or isinstance(value, bool):
        raise ValueError(f"expected a percentage, such as 10%; got {value!r}")
    return found


def day(value: object) -> datetime:
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        raise ValueError(f"expected a day, such as 2026-10-01; got {value!r}") from None
    if not 1970 < found.year < 3000:
        raise ValueError(f"expected a day between 1971 and 2999; got {value!r}")
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def not_often(value: timedelta) -> timedelta:
    if value < _LEAST_REPRICE:
        raise ValueError(f"expected 5m or more; got {value.total_seconds():g}s")
    return value


def hours_of_day(value: object) -> tuple[int, int]:
    found = _HOURS.fullmatch(str(value).strip())
    first, after = (int(found[1]), int(found[2])) if found else (-1, -1)
    if not (0 <= first <= 24 and 0 <= after <= 24 and first != after):
        raise ValueError(f"expected hours of the day in UTC, such as 8-20; got {value!r}")
    return first % 24, after


Machine = Annotated[tuple[str, int], PlainValidator(_machine)]
Capacity = Annotated[CapacityType, PlainValidator(_capacity)]
Share = Annotated[float, PlainValidator(_share)]
Positive = Annotated[int, Field(ge=1, le=10_000_000, strict=True)]


T = TypeVar("T", bound=Sized)


def some(items: T) -> T:
    if not items:
        raise ValueError("is empty; name at least one")
    return items


def class_name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(f"expected a name of letters, digits, dots, dashes and underscores; got {value!r}")
    return value
