"""A workload: classes of identical jobs, their arrivals and lengths, and the simulated market. Pure.

Times are whole seconds from the start of the workload; prices are USD per hour and machine.
"""

from __future__ import annotations

import heapq
import math
import random
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import accumulate
from statistics import NormalDist
from typing import NamedTuple, Protocol

from broker.core.job.jobs import Job
from broker.core.market.offers import Offer
from tests.lab.simulation.preemption import Victims

ENGINE = "simulated"
HOUR = 3600
DAY = 24 * HOUR
_WEEKEND = (5, 6)
_P95 = NormalDist().inv_cdf(0.95)


@dataclass(frozen=True, slots=True)
class PricePath:
    """The price movement of a pool: a new price every ``step`` seconds, log-normal around the offer's price with this
    standard deviation; never above the price ``most`` (micro-dollars)."""

    step: int
    spread: float
    most: int | None = None


@dataclass(frozen=True, slots=True)
class WorkloadPool:
    """Capacity of the simulated market. ``offer``: its first price, and how many machines there are (``slots``; None:
    no limit). ``recorded``: price changes as (second, micro-dollars), of a recorded market."""

    offer: Offer
    path: PricePath | None = None
    recorded: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RunLengths:
    """The work of a class's jobs, in seconds on their first machine: log-normal with this median and spread of the
    logarithm, exponential with the median's mean, or always the same."""

    median: float
    spread: float = 0.0
    exponential: bool = False

    @classmethod
    def of(cls, median: timedelta, p95: timedelta) -> RunLengths:
        """Log-normal with that median and 95th percentile."""
        ratio = p95 / median
        return cls(median.total_seconds(), math.log(ratio) / _P95 if ratio > 1 else 0.0)

    @property
    def mean(self) -> float:
        return self.median if self.exponential else self.median * math.exp(self.spread**2 / 2)

    def draw(self, chance: random.Random) -> int:
        if self.exponential:
            return max(round(chance.expovariate(1 / self.median)), 1)
        if not self.spread:
            return max(round(self.median), 1)
        return max(round(self.median * math.exp(chance.gauss(0.0, self.spread))), 1)


@dataclass(frozen=True, slots=True)
class ArrivalPattern:
    """The arrivals of a class's jobs: ``per_day`` on average, by chance, ``together`` at a time. ``hours``: only from
    one hour of the day to another (UTC); ``weekdays``: not at weekends; ``profile``: weights of hours, repeated."""

    per_day: float
    together: int = 1
    hours: tuple[int, int] | None = None
    weekdays: bool = False
    profile: tuple[float, ...] = ()

    def weights(self, start: datetime, hours: int) -> list[float]:
        """The weight of each hour from ``start`` (UTC)."""
        return [self._weight(start + timedelta(hours=hour), hour) for hour in range(hours)]

    def _weight(self, at: datetime, hour: int) -> float:
        if self.weekdays and at.weekday() in _WEEKEND:
            return 0.0
        if self.hours is not None:
            first, after = self.hours
            inside = first <= at.hour < after if first < after else at.hour >= first or at.hour < after
            if not inside:
                return 0.0
        return self.profile[hour % len(self.profile)] if self.profile else 1.0


@dataclass(frozen=True, slots=True)
class JobClass:
    """Identical jobs: one decision serves all of them while the market stays as it is. ``job.work``: the length that
    the broker knows; ``lengths``: the actual lengths."""

    name: str
    team: str
    user: str
    job: Job
    arrivals: ArrivalPattern | None = None
    lengths: RunLengths | None = None

    @property
    def gpus(self) -> int:
        """Accelerators of all nodes; nodes for a CPU job."""
        return self.job.num_nodes * max((machine.count for machine in self.job.resources), default=0) or (
            self.job.num_nodes
        )


Submission = tuple[int, int, int]
"""Second of arrival, place of the class, seconds of work."""


class JobSource(Protocol):
    def count(self, size: WorkloadSize) -> int:
        """The total number of jobs."""

    def submissions(self, size: WorkloadSize) -> Iterator[Submission]:
        """All of them in the order of arrival; the same ones for the same size."""


@dataclass(frozen=True, slots=True)
class WorkloadSize:
    """The part of a workload that is simulated. ``jobs``: their total, divided among the classes in proportion to their
    rates; None: by the rates. ``demand``: factors by team. ``seed``: of all random draws. ``victims``: who gives way to
    jobs of higher priority, of the policies that let any; ``saves``: after a checkpoint."""

    days: int
    seed: int
    jobs: int | None = None
    demand: tuple[tuple[str, float], ...] = ()
    victims: Victims = Victims.LEAST_LOST
    saves: bool = True

    def factor(self, team: str) -> float:
        return dict(self.demand).get(team, dict(self.demand).get("*", 1.0))


class RecordedWait(NamedTuple):
    team: str
    gpus: int
    waited: int


@dataclass(frozen=True, slots=True)
class SimulatedWorkload:
    """``source``: None: the patterns of the classes. ``start``: UTC. ``days``: those with recorded jobs; None: as many
    as requested. ``notes``: caveats for readers. ``recorded``: waits of a trace."""

    name: str
    start: datetime
    classes: tuple[JobClass, ...]
    pools: tuple[WorkloadPool, ...]
    source: JobSource | None = None
    days: int | None = None
    notes: tuple[str, ...] = field(default=())
    recorded: tuple[RecordedWait, ...] = ()

    def jobs(self) -> JobSource:
        return self.source or _Generated(self)


@dataclass(frozen=True, slots=True)
class _Generated:
    """Random jobs by the patterns of the classes: their number is the Poisson mean, their times are independent."""

    workload: SimulatedWorkload

    def count(self, size: WorkloadSize) -> int:
        return sum(self._counts(size))

    def submissions(self, size: WorkloadSize) -> Iterator[Submission]:
        streams = [self._of(place, number, size) for place, number in enumerate(self._counts(size)) if number]
        return heapq.merge(*streams)

    def _counts(self, size: WorkloadSize) -> list[int]:
        classes = self.workload.classes
        rates = [(one.arrivals.per_day if one.arrivals else 0.0) * size.factor(one.team) for one in classes]
        expected = [rate * size.days for rate in rates]
        if size.jobs is None:
            return [round(number) for number in expected]
        whole = sum(expected)
        if not whole:
            return [0] * len(classes)
        edges = [round(size.jobs * part / whole) for part in accumulate(expected)]
        return [after - before for before, after in zip([0, *edges[:-1]], edges, strict=True)]

    def _of(self, place: int, number: int, size: WorkloadSize) -> Iterator[Submission]:
        one = self.workload.classes[place]
        assert one.arrivals is not None
        assert one.lengths is not None
        times = _times(one, number, size, self.workload.start)
        chance = random.Random(f"{size.seed}/{one.team}/{one.name}/lengths")
        for time in times:
            yield time, place, one.lengths.draw(chance)


def _times(one: JobClass, number: int, size: WorkloadSize, start: datetime) -> Sequence[int]:
    """The seconds at which that many jobs arrive, ascending."""
    assert one.arrivals is not None
    weights = list(accumulate(one.arrivals.weights(start, size.days * 24)))
    if not weights or not weights[-1]:
        return ()
    chance = random.Random(f"{size.seed}/{one.team}/{one.name}/arrivals")
    together = one.arrivals.together
    times = array("q")
    while len(times) < number:
        hour = bisect_right(weights, chance.random() * weights[-1])
        at = min(hour, len(weights) - 1) * HOUR + chance.randrange(HOUR)
        times.extend([at] * min(together, number - len(times)))
    return array("q", sorted(times))
