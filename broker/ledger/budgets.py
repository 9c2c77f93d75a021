"""Budget periods, the division of a hold among them, and the spend and holds of each. Pure.

A period is half-open and in UTC; it begins and ends on the calendar of the budget's time zone, so days may have 23 or
25 hours. Weeks begin on Monday, quarters in January, April, July and October. A period of fixed days is written as
``2026-11-01/2027-02-01`` (the second day is the one after the last); it is the budget's only period, and the budget
pays nothing before or after it.
"""

import re
from calendar import month_name
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from fnmatch import translate
from functools import lru_cache
from zoneinfo import ZoneInfo

from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import BudgetUse
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.core.values.money import Money, in_microseconds
from broker.core.values.units import zone

PERIODS = ("day", "week", "month", "quarter")
Window = tuple[datetime, datetime]
_FEW_PERIODS = 3  # up to this number of periods, each is queried directly


def fixed_period(first: date, last: date) -> str:
    """The period from the first to the last of these days, both included."""
    return f"{first.isoformat()}/{(last + timedelta(days=1)).isoformat()}"


def is_fixed(period: str) -> bool:
    """Whether the period is one of fixed days, not a recurring one."""
    return "/" in period


def period_containing(period: str, timezone: str, at: datetime) -> Window:
    """The period that ``at`` (any time zone) falls into, as UTC times, half-open.

    For fixed days: that one period, wherever ``at`` lies. Raises ValueError for an unknown period or time zone.
    """
    cached = _LAST.get((period, timezone))
    if cached is not None and cached[0] <= at < cached[1]:
        return cached
    window = _LAST[period, timezone] = _containing(period, timezone, at)
    return window


# The last result by period and time zone: most calls are about the same period as the call before.
_LAST: dict[tuple[str, str], Window] = {}


def _containing(period: str, timezone: str, at: datetime) -> Window:
    local = zone(timezone)
    if is_fixed(period):
        start_day, end_day = map(date.fromisoformat, period.split("/"))
        return _day_start(start_day, local), _day_start(end_day, local)
    first = _first_day(period, at.astimezone(local).date())
    start, end = _day_start(first, local), _day_start(_next_first_day(period, first), local)
    # If clocks went back over midnight, the period ends at the first of the two midnights.
    while at >= end:
        first = _next_first_day(period, first)
        start, end = end, _day_start(_next_first_day(period, first), local)
    while at < start:
        first = _first_day(period, first - timedelta(days=1))
        start, end = _day_start(first, local), start
    return start, end


def periods_touching(period: str, timezone: str, window: Window) -> list[Window]:
    """Every period that overlaps the half-open window, in order; for an empty window, the period that contains it.
    Fixed days are always returned, whether they overlap or not."""
    periods = [period_containing(period, timezone, window[0])]
    while not is_fixed(period) and periods[-1][1] < window[1]:
        periods.append(period_containing(period, timezone, periods[-1][1]))
    return periods


def periods_span(spec: BudgetSpec, window: Window) -> Window:
    """From the start of the first to the end of the last of a budget's periods that the window touches."""
    periods = periods_touching(spec.period, spec.timezone, window)
    return periods[0][0], periods[-1][1]


def period_name(period: str, timezone: str, start: datetime) -> str:
    """The name of the period that begins at ``start``: ``November 2026``, ``Q4 2026``, ``2026-11-21``."""
    if is_fixed(period):
        first, end = map(date.fromisoformat, period.split("/"))
        return f"{first} to {end - timedelta(days=1)}"
    day = start.astimezone(zone(timezone)).date()
    match period:
        case "day":
            return day.isoformat()
        case "week":
            return f"the week from {day.isoformat()}"
        case "month":
            return f"{month_name[day.month]} {day.year}"
        case _:
            return f"Q{(day.month + 2) // 3} {day.year}"


def share_within(amount: Money, covers: Window, period: Window) -> Money:
    """The part of ``amount`` that falls into ``period`` when it is spread evenly over ``covers``.

    Over adjoining periods the shares add up to the amount exactly. An amount that covers no time (or ends before it
    begins) belongs to the moment ``covers[0]``.
    """
    whole = in_microseconds(covers[1] - covers[0])
    if whole <= 0:
        return amount if period[0] <= covers[0] < period[1] else Money.ZERO

    def amount_until(moment: datetime) -> Money:
        return amount.share(in_microseconds(min(max(moment, covers[0]), covers[1]) - covers[0]), whole)

    return amount_until(period[1]) - amount_until(period[0])


def future_period_edges(specs: Iterable[BudgetSpec], kind: MoneyKind, now: datetime) -> tuple[datetime, ...]:
    """The ends (UTC) after ``now`` of the current periods of budgets that count this kind of money, and the starts of
    fixed periods that have not begun; ascending, without duplicates."""
    counting = (spec for spec in specs if kind in spec.counts)
    edges = {edge for spec in counting for edge in period_containing(spec.period, spec.timezone, now) if edge > now}
    return tuple(sorted(edges))


def hold_by_period(periods: Sequence[Window], burns: Iterable[Burn]) -> list[Money]:
    """The part of these holds within each period: the basis of budget verdicts and displays."""
    shares = zip(*(burn.shares(periods) for burn in burns), strict=True)
    return [sum(amounts, Money.ZERO) for amounts in shares] or [Money.ZERO] * len(periods)


def summable_until(spec: BudgetSpec, now: datetime) -> datetime:
    """A time (UTC) such that holds ending by then lie in the period of ``now`` or in none, so they may be
    summed."""
    start, end = period_containing(spec.period, spec.timezone, now)
    return end if start <= now < end else now


def budget_uses(
    spec: BudgetSpec,
    window: Window,
    now: datetime,
    spent: Callable[[datetime, datetime], Money],
    holds: Iterable[Burn],
    spent_until: Callable[[], datetime] | None = None,
) -> tuple[BudgetUse, ...]:
    """The state of a budget in each period that ``window`` touches, in order.

    ``spent(start, end)`` and ``holds`` are the ledger's, restricted to what counts under ``spec``; those that last to
    `summable_until` may be one sum. Each hold counts from ``now`` on, at its full rate (`Burn.share`).
    ``spent_until()``: the end of the latest spend (UTC); with many periods, later ones are not queried.
    """
    burns = [hold.seen(now) for hold in holds]
    periods = periods_touching(spec.period, spec.timezone, window)
    last = spent_until() if spent_until is not None and len(periods) > _FEW_PERIODS else None
    return tuple(
        BudgetUse(
            period_start=period[0],
            period_end=period[1],
            spent=spent(*period) if last is None or period[0] < last else Money.ZERO,
            held=held,
        )
        for period, held in zip(periods, hold_by_period(periods, burns), strict=True)
    )


def in_scope(
    spec: BudgetSpec, *, user: str, team: str | None, project: str | None, workload: str | None, environment: str | None
) -> bool:
    """Whether money with those tags counts under the budget. Names in a budget may be shell-style patterns."""
    return (
        matches(spec.teams, team)
        and matches(spec.projects, project)
        and matches(spec.workloads, workload)
        and matches(spec.users, user)
        and matches(spec.environments, environment)
    )


def matches(patterns: tuple[str, ...], name: str | None) -> bool:
    """Whether a name matches one of the shell-style patterns, case-sensitive; no patterns match everything.

    No pattern, not even ``*``, matches a missing name.
    """
    return not patterns or (name is not None and _matcher(patterns)(name) is not None)


@lru_cache(maxsize=4096)
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], object]:
    return re.compile("|".join(translate(pattern) for pattern in patterns)).match


@lru_cache(maxsize=4096)
def _day_start(day: date, local: ZoneInfo) -> datetime:
    """The first moment of a day on the local calendar (UTC). If clocks skip midnight, the day begins at the skip."""
    return datetime.combine(day, time(), tzinfo=local).astimezone(UTC)


def _first_day(period: str, day: date) -> date:
    match period:
        case "day":
            return day
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "quarter":
            return day.replace(month=1 + 3 * ((day.month - 1) // 3), day=1)
        case _:
            raise ValueError(f"{period!r} is not a period; expected one of {', '.join(PERIODS)}")


def _next_first_day(period: str, first: date) -> date:
    """The first day of the period after the one that begins with ``first``."""
    longest = {"day": 1, "week": 7, "month": 31, "quarter": 92}[period]
    return _first_day(period, first + timedelta(days=longest))


@dataclass(frozen=True, slots=True)
class BudgetShare:
    """The part of a hold (USD) in one period of a budget, and the time (UTC) in which it can be used.

    ``period``: the whole period, half-open, in UTC.
    """

    budget: BudgetSpec
    period: Window
    held: Money
    start: datetime
    end: datetime

    @property
    def period_name(self) -> str:
        """``November 2026``"""
        return period_name(self.budget.period, self.budget.timezone, self.period[0])


def budget_shares(budgets: Iterable[BudgetSpec], burns: Mapping[MoneyKind, Burn]) -> list[BudgetShare]:
    """A job's hold by kind of money, divided into the periods of its budgets: by budget, then by time.

    Periods without a hold are left out. The shares of one budget add up to what it counts of the hold; for fixed days
    only to what falls into them.
    """
    return [share for budget in budgets for share in _shares_in(budget, burns)]


def _shares_in(budget: BudgetSpec, burns: Mapping[MoneyKind, Burn]) -> Iterable[BudgetShare]:
    matching = [burn for kind, burn in burns.items() if kind in budget.counts and burn.amount > Money.ZERO]
    if not matching:
        return
    start, end = min(burn.start for burn in matching), max(burn.end for burn in matching)
    periods = periods_touching(budget.period, budget.timezone, (start, end))
    for period, held in zip(periods, hold_by_period(periods, matching), strict=True):
        if held:
            yield BudgetShare(budget, period, held, max(start, period[0]), min(end, period[1]))
