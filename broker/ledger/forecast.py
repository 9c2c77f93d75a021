"""The forecast of a budget at the end of its period, and the thresholds it has passed. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.core.policy.policy import BudgetUse
from broker.core.values.burns import Burn
from broker.core.values.money import Money, in_microseconds

# Marks beside the percentages. EXCEEDED: more was spent than there was; OVERDRAWN: more was spent and held.
FORECAST, OVERDRAWN, EXCEEDED = "forecast", "overdrawn", "exceeded"

# Too small a part of a period gives no trend.
_TOO_EARLY = 10  # one tenth


@dataclass(frozen=True, slots=True)
class Draw:
    """A job's further draw: its hold, and the current cost of its machines per hour (USD); None if it has none."""

    hold: Burn
    rate: Money | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast for the end of a period (USD). ``committed``: spent, plus the draws of running and waiting jobs
    within their holds. ``trend``: extrapolation of the spend so far; None early in the period. ``used_up_at``: when the
    trend reaches the limit (UTC), if within the period.
    """

    committed: Money
    trend: Money | None
    used_up_at: datetime | None

    @property
    def expected(self) -> Money:
        """The greater of the two."""
        return self.committed if self.trend is None else max(self.committed, self.trend)


def forecast(use: BudgetUse, limit: Money, draws: Iterable[Draw], now: datetime) -> Forecast:
    """The forecast for the period of ``use`` at ``now`` (UTC). ``draws``: the open holds that count under the budget.

    A running job spends at its rate until the period or its hold ends; a waiting one spends its hold at the judged
    rate. A past period ends at what was spent.
    """
    period = (use.period_start, use.period_end)
    if now >= use.period_end:
        return Forecast(use.spent, use.spent, None)
    committed = use.spent
    for draw in draws:
        if draw.rate is not None and now >= use.period_start:
            committed += min(draw.hold.amount, draw.rate.for_duration(use.period_end - now))
        else:
            committed += draw.hold.seen(now).share(period)
    whole, elapsed = use.period_end - use.period_start, now - use.period_start
    if elapsed * _TOO_EARLY < whole:
        return Forecast(committed, None, None)
    trend = use.spent.share(in_microseconds(whole), in_microseconds(elapsed))
    used_up_at = None
    if trend > limit >= use.spent > Money.ZERO:
        left = (limit - use.spent).micros * in_microseconds(elapsed) // use.spent.micros
        used_up_at = now + timedelta(microseconds=left)
    return Forecast(committed, trend, used_up_at)


def passed(alerts: Iterable[str], limit: Money, use: BudgetUse, expected: Money) -> list[str]:
    """The thresholds a budget has passed: those of ``alerts`` (percentages of spent plus held, and the forecast), and
    always overdrawn and exceeded.
    """
    used = use.spent + use.held
    found = []
    for alert in alerts:
        if alert == FORECAST:
            if expected > limit:
                found.append(alert)
        elif used and used.micros * 100_000 >= limit.micros * round(float(alert.rstrip("%")) * 1000):
            found.append(alert)
    if used > limit:
        found.append(OVERDRAWN)
    if use.spent > limit:
        found.append(EXCEEDED)
    return found
