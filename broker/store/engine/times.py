"""Times in the database: whole microseconds since 1970 UTC, so that order and equality are exact on both databases."""

from datetime import UTC, datetime, timedelta

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
