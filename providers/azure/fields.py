"""Fields of Azure's JSON, which may be missing or invalid; one bad field must not lose the other rows."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any


def nested_object(row: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The object at the end of the path; an empty one if there is none."""
    value: Any = row
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def texts(values: object) -> Iterator[str]:
    yield from (value for value in (values if isinstance(values, list) else ()) if isinstance(value, str))


def objects(values: object) -> Iterator[Mapping[str, Any]]:
    yield from (value for value in (values if isinstance(values, list) else ()) if isinstance(value, Mapping))


def count(value: object) -> int | None:
    """A whole number from 0 up, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else None


def region_of(row: Mapping[str, Any]) -> str:
    """The region a resource is in, as prices name it; Azure writes ``East US`` as well."""
    return str(row.get("location") or "").replace(" ", "").lower()


def utc(time: object) -> datetime | None:
    """A time or a day; a day, and a time without a zone, is UTC."""
    try:
        parsed = datetime.fromisoformat(time) if isinstance(time, str) else None
        if parsed is None:
            return None
        return parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def parts_of(id: object) -> Mapping[str, str]:
    """The names in an Azure Resource Manager id, by the (lower case) kind before each; empty if it is not an id."""
    parts = id.split("/")[1:] if isinstance(id, str) else []
    return {kind.lower(): value for kind, value in zip(parts[::2], parts[1::2], strict=False)}
