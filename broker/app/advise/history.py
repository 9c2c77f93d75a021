"""How much the team really used: GPUs at work hour by hour, from the attempts on record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING

from broker.core.errors import InvalidInput
from broker.core.offers import MoneyKind
from broker.economics.rules import DEFAULTS, RulesOfThumb

if TYPE_CHECKING:
    from broker.app.wiring import Broker

Stretch = tuple[datetime, datetime, int]
"""From, until (UTC), and how many GPUs were up."""

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Usage:
    """The use of ``hours`` hours. ``gpu_hours``: in all. ``utilisation``: of the first ``gpus`` GPUs that one would
    own, the share of hours they would have been at work. ``peak``: most GPUs at once. ``steady``: as many were at work
    in at least the share of hours above which buying is worth the arithmetic. ``attempts``: how many are counted."""

    hours: int
    gpu_hours: float
    gpus: int
    utilisation: float
    peak: float
    steady: float
    attempts: int

    @property
    def peak_to_baseline(self) -> float:
        """Peak ÷ steady demand, 1 at least; the peak itself where nothing is steady."""
        return max(1.0, self.peak / self.steady if self.steady else self.peak)


def usage(
    broker: Broker,
    *,
    days: float,
    gpus: int = 1,
    accelerator: str | None = None,
    team: str | None = None,
    rules: RulesOfThumb = DEFAULTS,
) -> Usage:
    """What ran in the last ``days`` (simulated machines do not count), of one accelerator and team if named. Raises
    InvalidInput when nothing did."""
    now = broker.clock.now()
    since = now - timedelta(days=days)
    stretches: list[Stretch] = []
    with broker.store.reading() as look:
        for view in look.jobs():
            if team is not None and view.job.team != team:
                continue
            for attempt in view.attempts:
                offer = attempt.placement.offer
                if attempt.up_since is None or offer.money is MoneyKind.SANDBOX or not offer.count:
                    continue
                if accelerator in (None, offer.accelerator):
                    stretches.append((attempt.up_since, attempt.gone_at or now, attempt.placement.gpus))
    used = [s for s in stretches if s[1] > since and s[0] < now]
    if not used:
        what = f" on {accelerator}" if accelerator else ""
        raise InvalidInput(
            f"no GPU job ran{what} in the last {days:g} days", hint="give --hours-per-day or --utilisation instead"
        )
    return measured(used, since, now, gpus, rules)


def measured(
    stretches: Iterable[Stretch], since: datetime, until: datetime, gpus: int, rules: RulesOfThumb = DEFAULTS
) -> Usage:
    """The use within a time, from what was up when; hours at the edges count in part."""
    used = list(stretches)
    hours = max(1, ceil((until - since) / _HOUR))
    demand = [0.0] * hours
    for start, end, count in used:
        at, end = max(start, since), min(end, until)
        while at < end:
            index = min(int((at - since) / _HOUR), hours - 1)
            edge = min(end, since + (index + 1) * _HOUR) if index < hours - 1 else end
            demand[index] += count * ((edge - at) / _HOUR)
            at = edge
    ordered = sorted(demand, reverse=True)
    return Usage(
        hours=hours,
        gpu_hours=sum(demand),
        gpus=gpus,
        utilisation=sum(min(level, gpus) for level in demand) / (gpus * hours),
        peak=ordered[0],
        steady=ordered[min(hours - 1, ceil(rules.buy_above_utilisation * hours) - 1)],
        attempts=len(used),
    )
