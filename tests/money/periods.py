"""The budget period of a moment, computed independently, with only the time zone database."""

from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from tests.money.moves import ExpectedBudget


@lru_cache(maxsize=100_000)
def _midnight(day: date, zone: str) -> datetime:
    return datetime.combine(day, time(), tzinfo=ZoneInfo(zone)).astimezone(UTC)


def period_of(budget: ExpectedBudget, moment: datetime) -> tuple[datetime, datetime]:
    """The period, half-open, in UTC; for fixed days, the only one."""
    if budget.days is not None:
        first, last = budget.days
        return _midnight(first, budget.zone), _midnight(last + timedelta(days=1), budget.zone)
    day = moment.astimezone(ZoneInfo(budget.zone)).date()
    first, after = _days(budget.period, day)
    begins, ends = _midnight(first, budget.zone), _midnight(after, budget.zone)
    while moment >= ends:  # clocks set back over midnight repeat a date, but no day begins twice
        first, after = _days(budget.period, after)
        begins, ends = ends, _midnight(after, budget.zone)
    return begins, ends


def _days(period: str, day: date) -> tuple[date, date]:
    """The first day of the period around a day, and the first day of the next."""
    if period == "day":
        return day, day + timedelta(days=1)
    if period == "week":
        first = day - timedelta(days=day.weekday())
        return first, first + timedelta(days=7)
    if period == "month":
        first = day.replace(day=1)
        return first, (first + timedelta(days=31)).replace(day=1)
    first = date(day.year, 3 * ((day.month - 1) // 3) + 1, 1)
    return first, (first + timedelta(days=95)).replace(day=1)
