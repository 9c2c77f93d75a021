"""Recorded usage: GPUs in use in each hour, from the recorded attempts."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.figures import Figure, Share
from broker.store import is_missing

Interval = tuple[datetime, datetime, float]
"""Start, end (UTC), and the number of GPUs."""

HOUR = timedelta(hours=1)


def hourly_use(intervals: Iterable[Interval], since: datetime, hours: int) -> list[float]:
    """The mean number of GPUs in use in each of the ``hours`` from ``since`` (UTC) on."""
    sums, until = [0.0] * hours, since + hours * HOUR
    for start, end, gpus in intervals:
        position, end = max(start, since), min(end, until)
        while position < end:
            index = (position - since) // HOUR
            edge = min(end, since + (index + 1) * HOUR)
            sums[index] += gpus * ((edge - position) / HOUR)
            position = edge
    return sums


@dataclass(frozen=True, slots=True)
class AttemptUse:
    """An attempt whose machines came up, without simulated ones: ``gpus``: cards in total, from ``up_since`` until
    ``gone_at`` (UTC; None: not known to be gone)."""

    team: str | None
    accelerator: str
    gpus: float
    up_since: datetime
    gone_at: datetime | None


@dataclass(frozen=True, slots=True)
class PastUse:
    """The usage of ``hours`` hours. ``gpu_hours``: the total. ``utilization``: the share of hours in which ``gpus``
    owned GPUs would have been in use. ``peak``: the maximum number of GPUs in use. ``steady``: the number of GPUs in
    use in at least the share of hours above which buying is considered. ``attempts``: the number of counted attempts.
    """

    hours: int
    gpu_hours: Figure
    gpus: int
    utilization: Share
    peak: Figure
    steady: Figure
    attempts: int

    @property
    def text(self) -> str:
        """``use: 1,200.5 GPU-hours of 12 attempts in 90 days; the utilization of one owned GPU …``"""
        owned_text = "one owned GPU" if self.gpus == 1 else f"{self.gpus:,} owned GPUs"
        return (
            f"use: {self.gpu_hours:,.1f} GPU-hours of {self.attempts} attempts in {self.hours / 24:g} days; the "
            f"utilization of {owned_text} would have been {self.utilization:.1%}"
        )

    @property
    def peak_to_baseline(self) -> float:
        """Peak ÷ steady demand, at least 1; the peak itself without steady demand."""
        return max(1.0, self.peak / self.steady if self.steady else self.peak)


def usage(
    recorded: Iterable[AttemptUse],
    now: datetime,
    *,
    days: float,
    gpus: int = 1,
    accelerator: str | None = None,
    team: str | None = None,
    assumptions: Assumptions = DEFAULTS,
) -> PastUse:
    """The usage in the ``days`` before ``now`` (UTC), of one accelerator and team if named. Raises InvalidInput without
    any."""
    start = now - timedelta(days=days)
    attempts = [
        attempt for attempt in recorded if accelerator in (None, attempt.accelerator) and team in (None, attempt.team)
    ]
    intervals = [(attempt.up_since, attempt.gone_at or now, attempt.gpus) for attempt in attempts]
    overlapping = [s for s in intervals if s[1] > start and s[0] < now]
    if not overlapping:
        accelerator_text = f" on {accelerator}" if accelerator else ""
        raise InvalidInput(
            f"no GPU job ran{accelerator_text} in the last {days:g} days", hint="give --hours-per-day instead"
        )
    return summarize(overlapping, start, now, gpus, assumptions)


def recorded_use(store_url: str, broker: Callable[[], Broker], since: datetime) -> tuple[AttemptUse, ...]:
    """Every recorded attempt with GPUs that is not simulated, since ``since`` (UTC); none without a store."""
    if is_missing(store_url):
        return ()
    with broker().store.reading() as reader:
        return tuple(
            AttemptUse(attempt.team, attempt.card or "", attempt.gpus, attempt.since, attempt.until)
            for attempt in reader.machine_time(since=since)
            if attempt.gpus
        )


def summarize(
    intervals: Iterable[Interval], since: datetime, until: datetime, gpus: int, assumptions: Assumptions = DEFAULTS
) -> PastUse:
    """The usage from ``since`` to ``until`` (UTC); hours at the edges count in part."""
    counted = list(intervals)
    hours = max(1, ceil((until - since) / HOUR))
    demand = hourly_use(((start, min(end, until), count) for start, end, count in counted), since, hours)
    sorted_demand = sorted(demand, reverse=True)
    return PastUse(
        hours=hours,
        gpu_hours=sum(demand),
        gpus=gpus,
        utilization=sum(min(level, gpus) for level in demand) / (gpus * hours),
        peak=sorted_demand[0],
        steady=sorted_demand[min(hours - 1, ceil(assumptions.buy_above_utilization * hours) - 1)],
        attempts=len(counted),
    )
