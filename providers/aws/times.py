"""Times as AWS's APIs write them."""

from datetime import UTC, datetime


def utc(time: object) -> datetime | None:
    """A time of AWS in UTC: botocore returns datetimes, for savings plans text; None if invalid."""
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            return None
    if not isinstance(time, datetime):
        return None
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
