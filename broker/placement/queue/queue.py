"""Many jobs at once on capacity that is limited: who gets which machines, who waits for them, who goes elsewhere.

Each job has options: machines of a limited pool (owned, reserved), for which it may have to wait, or machines that can
be had at any time, at a price. A *round* gives every job one option and a start, so that no pool has to give more
machines than it has at any time, and a gang gets all of its machines together. What is made small is

    first  the number of jobs that are late
    then   Σ  weight · (what the option weighs + what an hour is worth · hours until the start)

where an option weighs what it is ranked by in the plan of the job alone: its expected cost and the worth of its time;
and an hour is worth the job's own `value_of_time`, or where nobody names one, so much a GPU by its priority. The rules:

- **Priority**: jobs of a higher priority are placed as if there were none of a lower one.
- **Deadline**: a job that has any way to be in time is in time, if need be at a price; nothing outweighs being late.
- **Fairness**: of one priority, the first job of each team weighs most, and each further one less; so a team that
  hands in a hundred jobs does not take everything. What a team has running counts as handed in before.

Placing jobs one after the other, each where it is best off with what the earlier ones have left, keeps all of them.
What is sought is the order, and which jobs had better take another option than is best for them: see `queue_search`.
How far that is from the best there is, `queue_exact` tells on small queues. Pure and deterministic. Times are hours
from now, money USD.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from broker.core.job.jobs import Priority

TIERS = (Priority.URGENT, Priority.HIGH, Priority.NORMAL, Priority.LOW)
# What an hour of waiting is worth, USD per GPU, where neither job nor policy says: an assumption. At $2 a GPU-hour, a
# normal job waits some 20 hours for each hour that it would have to pay for elsewhere.
WAITING = {Priority.LOW: 0.02, Priority.NORMAL: 0.10, Priority.HIGH: 0.50, Priority.URGENT: 2.00}
FAIRNESS = 0.25
# So many placements of single jobs are tried at most for each priority; seconds.
EFFORT = 60_000
# A job with less slack than this goes before fairness.
_PRESSING = 2.0
EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run a job: ``hours`` from its start to its finish, for ``cost`` USD as the plan has it: in all, or for
    an hour where nobody knows how much work there is. ``weighs``: USD that decide. ``pool``: the limited capacity whose
    machines it takes, None where there are always some. ``margin``: hours that a plan keeps free before a deadline."""

    name: str
    pool: str | None
    hours: float
    cost: float
    weighs: float
    margin: float = 0.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A job in the queue. ``deadline``: hours from now, negative when it is over; ``handed_in``: hours from now, so
    negative; ``needs``: hours of work left, as far as known; ``open_ended``: they are not known, so it is late only if
    its deadline is over when it starts; ``value_of_time``: USD that an hour until its finish is worth, 0 likewise,
    None where neither job nor policy says, or a deadline rules."""

    id: str
    team: str
    priority: Priority
    nodes: int
    gpus: int
    options: tuple[Option, ...] = ()
    deadline: float | None = None
    handed_in: float = 0.0
    needs: float = 0.0
    open_ended: bool = False
    value_of_time: float | None = None

    @property
    def slack(self) -> float:
        """How long it may still wait (hours); endless without a deadline."""
        return math.inf if self.deadline is None else self.deadline - self.needs


@dataclass(frozen=True, slots=True)
class Turn:
    """What a job got. ``start``: hours from now. ``option`` None: nothing can serve it."""

    entry: Entry
    option: Option | None
    start: float
    late: bool

    @property
    def finish(self) -> float | None:
        return None if self.option is None else self.start + self.option.hours


@dataclass(frozen=True, slots=True)
class Free:
    """The machines of a limited pool that can be had: from each time on (hours from now, ascending, the first 0 or
    less), so many."""

    steps: tuple[tuple[float, int], ...]

    @classmethod
    def of(cls, now: int, returns: Iterable[tuple[float, int]] = ()) -> Free:
        """``now`` are free; ``returns``: so many more come back at those times."""
        steps, number = [(0.0, now)], now
        for at, more in sorted(returns):
            number += more
            steps.append((max(at, 0.0), number))
        return cls(tuple(steps))


@dataclass(frozen=True, slots=True)
class Rules:
    """``waiting``: what an hour of it is worth, USD per GPU, to jobs that do not say. ``fairness``: how much each
    earlier job of its team takes from a job's weight; 0 for none. ``running``: how many of each team run already."""

    waiting: Mapping[Priority, float] = field(default_factory=lambda: WAITING)
    fairness: float = FAIRNESS
    running: Mapping[str, int] = field(default_factory=dict)


def in_turn(entries: Iterable[Entry], running: Mapping[str, int] | None = None) -> list[Entry]:
    """The order in which jobs are looked at, cheap to find: by priority; what would soon be late; the team that has had
    fewest turns; least slack; first come."""
    return [entry for entry, _ in _with_turns(entries, running or {})]


def weights(entries: Iterable[Entry], rules: Rules) -> dict[str, float]:
    """How much each job weighs among those of its priority, by id: 1 / (1 + fairness · turns its team had before)."""
    return {entry.id: 1 / (1 + rules.fairness * turn) for entry, turn in _with_turns(entries, rules.running)}


def burden(entry: Entry, option: Option, start: float, weight: float, rules: Rules) -> float:
    """What the objective has for this job there and then, being late apart."""
    return weight * (option.weighs + hour_of_waiting(entry, rules) * start)


def hour_of_waiting(entry: Entry, rules: Rules) -> float:
    """What it is worth to this job, USD."""
    return rules.waiting[entry.priority] * entry.gpus if entry.value_of_time is None else entry.value_of_time


def is_late(entry: Entry, option: Option, start: float) -> bool:
    """Whether it would miss its deadline there."""
    return start > latest_start(entry, option) + EPSILON


def latest_start(entry: Entry, option: Option) -> float:
    """Hours from now; later it would miss its deadline there."""
    if entry.deadline is None:
        return math.inf
    return entry.deadline - (0.0 if entry.open_ended else option.hours + option.margin)


def place(
    entries: Sequence[Entry], free: Mapping[str, Free], rules: Rules | None = None, *, effort: int = EFFORT
) -> list[Turn]:
    """A turn for every job, in the order of `in_turn`. ``free``: of every pool that an option names."""
    from broker.placement.queue.search import Profile, Search  # which speaks in the words of this module

    rules = rules or Rules()
    weight, ordered = weights(entries, rules), in_turn(entries, rules.running)
    profiles = {pool: Profile(list(of.steps)) for pool, of in free.items()}
    turns: dict[str, Turn] = {}
    for _, tier in groupby(ordered, key=lambda entry: entry.priority):
        jobs = list(tier)
        for turn in Search(jobs, profiles, weight, rules, effort).best():
            turns[turn.entry.id] = turn
            if turn.option is not None and turn.option.pool is not None:
                profiles[turn.option.pool].take(turn.start, turn.option.hours, turn.entry.nodes)
    return [turns[entry.id] for entry in ordered]


def total(turns: Iterable[Turn], rules: Rules | None = None) -> tuple[int, float]:
    """The objective of a round: how many of those that get something are late, and what all of them weigh."""
    rules, placed = rules or Rules(), list(turns)
    weight = weights([turn.entry for turn in placed], rules)
    burdens = [
        burden(turn.entry, turn.option, turn.start, weight[turn.entry.id], rules)
        for turn in placed
        if turn.option is not None
    ]
    return sum(turn.late and turn.option is not None for turn in placed), sum(burdens)


def _with_turns(entries: Iterable[Entry], running: Mapping[str, int]) -> list[tuple[Entry, int]]:
    had: Counter[str] = Counter(running)
    numbered: list[tuple[Entry, int]] = []
    tier: Priority | None = None
    for entry in sorted(entries, key=lambda one: (TIERS.index(one.priority), one.slack, one.handed_in, one.id)):
        if entry.priority is not tier:
            tier, had = entry.priority, Counter(running)
        numbered.append((entry, had[entry.team]))
        had[entry.team] += 1

    def key(one: tuple[Entry, int]) -> tuple[int, bool, int, float, float, str]:
        entry, turn = one
        return TIERS.index(entry.priority), entry.slack >= _PRESSING, turn, entry.slack, entry.handed_in, entry.id

    return sorted(numbered, key=key)
