"""The forecast of a budget at the end of its period, and the thresholds it has passed. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from broker.core.policy.policy import BudgetUse
from broker.core.values.burns import Burn
from broker.core.values.money import Money, in_microseconds

# Marks other than percentages of the spend. FORECAST: more than the limit is expected, or with a percentage (``forecast
# 80%``) at least that part of it; EXCEEDED: more than the limit was spent.
FORECAST, EXCEEDED = "forecast", "exceeded"

# Too small a part of a period gives no trend.
_TOO_EARLY = 10  # one tenth


@dataclass(frozen=True, slots=True)
class Draw:
    """A job's further spend: its hold, the current cost of its machines per hour (USD; None without machines), and its
    expected cost from now on, independent of the hold (USD; None if unknown)."""

    hold: Burn
    rate: Money | None = None
    expected: Money | None = None


@dataclass(frozen=True, slots=True)
class SpendingPace:
    """The spend expected for the rest of a period from daily spending so far (USD), with the bounds of an 80 %
    interval."""

    rest: Money
    low: Money
    high: Money


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast for the end of a period (USD). ``committed``: spent, plus what running and waiting jobs are expected
    to draw, at most what they hold. ``trend``: the spend so far continued, by its `SpendingPace` where there is one;
    null early in the period without. ``expected``: the greater of both. ``low`` and ``high``: between them it will be
    in four of five cases, by the pace; null without. ``used_up_at``: when the trend reaches the limit (UTC), if within
    the period."""

    committed: Money
    trend: Money | None
    expected: Money
    low: Money | None = None
    high: Money | None = None
    used_up_at: datetime | None = None


def forecast(
    use: BudgetUse, limit: Money, draws: Iterable[Draw], now: datetime, pace: SpendingPace | None = None
) -> Forecast:
    """The forecast for the period of ``use`` at ``now`` (UTC). ``draws``: the open holds that count under the budget.

    A running job spends at its rate until the period ends or its hold or expected cost is used up; a waiting one spends
    its hold at the judged rate, at most its expected cost. Without a ``pace`` the trend is the average of the period.
    For a past period: the spend.
    """
    period = (use.period_start, use.period_end)
    if now >= use.period_end:
        return Forecast(use.spent, use.spent, use.spent)
    committed = use.spent
    for draw in draws:
        if draw.rate is not None and now >= use.period_start:
            committed += _at_most(draw.expected, min(draw.hold.amount, draw.rate.for_duration(use.period_end - now)))
        else:
            hold = draw.hold.seen(now)
            committed += replace(hold, amount=_at_most(draw.expected, hold.amount)).share(period)
    if pace is not None and now >= use.period_start:
        return _with_pace(use, limit, committed, now, pace)
    whole, elapsed = use.period_end - use.period_start, now - use.period_start
    if elapsed * _TOO_EARLY < whole:
        return Forecast(committed, None, committed)
    trend = use.spent.share(in_microseconds(whole), in_microseconds(elapsed))
    used_up_at = None
    if trend > limit >= use.spent:
        time_left = (limit - use.spent).micros * in_microseconds(elapsed) // use.spent.micros
        used_up_at = now + timedelta(microseconds=time_left)
    return Forecast(committed, trend, max(committed, trend), used_up_at=used_up_at)


def _at_most(expected: Money | None, amount: Money) -> Money:
    return amount if expected is None else min(expected, amount)


def _with_pace(use: BudgetUse, limit: Money, committed: Money, now: datetime, pace: SpendingPace) -> Forecast:
    trend, used_up_at = use.spent + pace.rest, None
    if trend > limit >= use.spent:
        time_left, rest = in_microseconds(use.period_end - now), pace.rest.micros
        used_up_at = now + timedelta(microseconds=(limit - use.spent).micros * time_left // rest)
    expected = max(committed, trend)
    low, high = min(expected, use.spent + pace.low), max(expected, use.spent + pace.high)
    return Forecast(committed, trend, expected, low, high, used_up_at)


def passed_thresholds(alerts: Iterable[str], limit: Money, spent: Money, expected: Money) -> list[str]:
    """The thresholds a budget has passed, of ``alerts`` and `EXCEEDED`.

    A percentage compares the limit with ``spent``; with ``forecast`` before it, with ``expected``, the spend by the end
    of the period. `FORECAST` alone: more than the limit is expected. Holds are not compared: most of their money is
    released.
    """
    passed_alerts = []
    for alert in alerts:
        kind, share = threshold(alert)
        amount = spent if kind is not FORECAST else expected
        if share is None:
            is_reached = amount > limit
        else:
            is_reached = bool(amount) and amount.micros * 100_000 >= limit.micros * round(share * 1000)
        if is_reached:
            passed_alerts.append(alert)
    if spent > limit:
        passed_alerts.append(EXCEEDED)
    return passed_alerts


def threshold(mark: str) -> tuple[str, float | None]:
    """A threshold's kind (`FORECAST`, or empty for spend) and its percentage; None means more than the limit."""
    kind = FORECAST if mark.startswith(FORECAST) else ""
    share = mark.removeprefix(kind).strip()
    return kind, float(share.removesuffix("%")) if share.endswith("%") else None
