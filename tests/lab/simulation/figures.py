"""Counts of a simulation by team, by pool and over time, and the figures computed from them."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import correlation

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from tests.lab.simulation.ledger import VirtualLedger
from tests.lab.simulation.market import PoolInUse
from tests.lab.simulation.workload import DAY, HOUR, SimulatedWorkload, WorkloadSize

_MOST_SLOTS = 240
SOME_TIME = 60  # seconds; a shorter wait does not count as one
SHORTEST = 10.0
"""Seconds: the usual bound of the slowdown. Without one, the shortest jobs decide the mean."""


class Slots:
    """The integral of something over time, by slot. Each stretch is added in constant time, however long it is."""

    def __init__(self, count: int, width: int) -> None:
        self._width, self._count = width, count
        self._parts = array("d", bytes(8 * (count + 1)))  # the parts of slots in which a stretch begins or ends
        self._whole = array("d", bytes(8 * (count + 2)))  # changes of the height, from one whole slot to the next

    def add(self, start: int, end: int, height: float) -> None:
        """``height`` from one second to another, cut at the last slot."""
        width = self._width
        end = min(end, self._count * width)
        if start >= end or not height:
            return
        first, last = start // width, end // width
        if first == last:
            self._parts[first] += height * (end - start)
            return
        self._parts[first] += height * ((first + 1) * width - start)
        self._parts[last] += height * (end - last * width)
        self._whole[first + 1] += height
        self._whole[last] -= height

    def means(self) -> list[float]:
        """The mean height in each slot."""
        heights = list(accumulate(self._whole))
        return [self._parts[slot] / self._width + heights[slot] for slot in range(self._count)]


class OverTime:
    """The slots of one simulation of ``days`` days of arrivals; later days are left out. ``gpus``: in use, by capacity
    type; ``spending``: micro-dollars per second, by kind of money; ``waiting``: jobs."""

    def __init__(self, days: int) -> None:
        hours = days * DAY // HOUR
        self.step = -(-hours // _MOST_SLOTS) * HOUR
        self._count = -(-hours * HOUR // self.step)
        self.gpus: dict[CapacityType, Slots] = {}
        self.spending: dict[MoneyKind, Slots] = {}
        self.waiting = self._slots()
        self._waiting_since, self._number = 0, 0

    def _slots(self) -> Slots:
        return Slots(self._count, self.step)

    def ran(self, start: int, end: int, gpus: int, kind: CapacityType) -> None:
        """Machines with so many accelerators ran from one second to another."""
        if (found := self.gpus.get(kind)) is None:
            found = self.gpus[kind] = self._slots()
        found.add(start, end, gpus)

    def paid(self, start: int, end: int, micros: int, kind: MoneyKind) -> None:
        """``micros`` micro-dollars were spent evenly over a time."""
        if (found := self.spending.get(kind)) is None:
            found = self.spending[kind] = self._slots()
        found.add(start, end, micros / max(end - start, 1))

    def wait(self, at: int, number: int) -> None:
        """From this second on, ``number`` jobs wait."""
        self.waiting.add(self._waiting_since, at, self._number)
        self._waiting_since, self._number = at, number

    def waiting_means(self) -> Sequence[float]:
        """The mean number of waiting jobs in each slot; none after the last call of `wait`."""
        return self.waiting.means()


@dataclass(slots=True)
class TeamTally:
    """The jobs of one team. Seconds; GPU-seconds; USD. ``waits``: from submission to the first machine, of each job
    that got one; ``asked_gpu_seconds``: the work of all submitted jobs on their first machine; ``useful``: the part of
    it that was done; ``repeated``: what jobs repeat that gave way to others. ``slowdowns``: the sum over finished jobs
    of their bounded slowdown, (finish - submission) / work, where a job shorter than `SHORTEST` counts as that long,
    and none less than 1."""

    submitted: int = 0
    started: int = 0
    finished: int = 0
    unfinished: int = 0
    stopped: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    put_off: Counter[str] = field(default_factory=Counter)
    with_deadline: int = 0
    late: int = 0
    interruptions: int = 0
    preempted: int = 0
    repeated_gpu_seconds: float = 0.0
    waits: array[int] = field(default_factory=lambda: array("i"))
    asked_gpu_seconds: float = 0.0
    useful_gpu_seconds: float = 0.0
    used_gpu_seconds: dict[CapacityType, float] = field(default_factory=dict)
    slowdowns: float = 0.0
    spent: dict[MoneyKind, Money] = field(default_factory=dict)

    def add_spent(self, spent: Iterable[tuple[MoneyKind, Money]]) -> None:
        for kind, amount in spent:
            self.spent[kind] = self.spent.get(kind, Money.ZERO) + amount

    def add(self, other: TeamTally) -> None:
        """Count the jobs of another team, too."""
        for name in ("submitted", "started", "finished", "unfinished", "with_deadline", "late", "interruptions"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("preempted", "asked_gpu_seconds", "useful_gpu_seconds", "repeated_gpu_seconds", "slowdowns"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for counter in ("stopped", "refused", "put_off"):
            getattr(self, counter).update(getattr(other, counter))
        self.waits.extend(other.waits)
        for kind, seconds in other.used_gpu_seconds.items():
            self.used_gpu_seconds[kind] = self.used_gpu_seconds.get(kind, 0.0) + seconds
        self.add_spent(other.spent.items())


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """``seconds``: until the last event. ``pools``: their use within the days of arrivals. ``faults``: of the ledger;
    empty if it balances. ``decisions``: about classes; ``digest``: SHA-256 over every event and movement;
    ``over_time``: of the days of arrivals; ``gangs``: waits in seconds by the size of jobs (`GANGS`)."""

    workload: SimulatedWorkload
    size: WorkloadSize
    teams: dict[str, TeamTally]
    pools: list[PoolInUse]
    ledger: VirtualLedger
    seconds: int
    decisions: int
    rounds: int
    faults: list[str]
    digest: str
    over_time: OverTime
    gangs: dict[str, array[int]]


@dataclass(frozen=True, slots=True)
class WaitFigures:
    """Waiting in seconds. ``waited``: the share of jobs that waited for `SOME_TIME` or longer."""

    mean: float
    p50: float
    p95: float
    longest: float
    waited: float

    @classmethod
    def of(cls, waits: Sequence[int]) -> WaitFigures:
        """The figures of these waits; zeros for none. A percentile is the least wait that as many do not exceed."""
        if not waits:
            return cls(0.0, 0.0, 0.0, 0.0, 0.0)
        ordered = sorted(waits)

        def at(share: float) -> float:
            return float(ordered[max(-(-int(share * 1000) * len(ordered) // 1000), 1) - 1])

        some = len(ordered) - bisect_left(ordered, SOME_TIME)
        return cls(sum(ordered) / len(ordered), at(0.5), at(0.95), float(ordered[-1]), some / len(ordered))


GANGS = ("1", "2-4", "5-8", "9 or more")
"""Sizes of jobs in GPUs, as the analysis of Philly (USENIX ATC '19) divides them."""


def gang_of(gpus: int) -> str:
    """The size of a job with so many GPUs."""
    return GANGS[(gpus > 1) + (gpus > 4) + (gpus > 8)]


def agreement(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's rank correlation: 1 for the same order, -1 for the opposite one; None for fewer than two values, or if
    all of one are equal. Equal values share their mean rank."""
    if len(one) < 2 or len(set(one)) == 1 or len(set(other)) == 1:
        return None
    return correlation(_ranks(one), _ranks(other))


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [(bisect_left(ordered, value) + bisect_right(ordered, value) - 1) / 2 for value in values]


def jain(values: Sequence[float]) -> float | None:
    """Jain's index of fairness, (Σx)² / (n·Σx²): 1 if all get the same, 1/n if one gets all; None without anything to
    share."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None
