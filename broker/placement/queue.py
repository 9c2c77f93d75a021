"""Many jobs at once on capacity that is limited: who gets which machines, who waits for them, who goes elsewhere.

Each job has options: machines of a limited pool (owned, reserved), for which it may have to wait, or machines that can
be had at any time, at a price. A *round* gives every job one option and a start, so that no pool has to give more
machines than it has at any time, and a gang gets all of its machines together. What is made small is

    Σ  weight · (expected cost + what waiting is worth · GPUs · hours until the start)  +  a penalty for each job late

under these rules:

- **Priority**: jobs of a higher priority are placed as if there were none of a lower one.
- **Deadline**: a job that has any way to be in time is in time, if need be at a price; nothing outweighs being late.
- **Fairness**: of one priority, the first job of each team weighs most, and each further one less; so a team that
  hands in a hundred jobs does not take everything. What a team has running counts as handed in before.

Placing jobs one after the other, each where it is best off with what the earlier ones have left, keeps all of them.
What is sought is the order, and which jobs had better leave limited capacity to others: from a few good orders on by
exchanging, moving and sending away, as long as that helps and the effort lasts. Pure and deterministic. How far that is
from the best there is, `queue_exact` tells on small queues. Times are hours from now, money USD.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from broker.core.jobs import Priority

TIERS = (Priority.URGENT, Priority.HIGH, Priority.NORMAL, Priority.LOW)
# What an hour of waiting is worth, USD per GPU, where no policy says: an assumption. At $2 a GPU-hour, a normal job
# waits some 20 hours for each hour that it would have to pay for elsewhere.
WAITING = {Priority.LOW: 0.02, Priority.NORMAL: 0.10, Priority.HIGH: 0.50, Priority.URGENT: 2.00}
FAIRNESS = 0.25
# So many placements of single jobs are tried at most for each priority; seconds.
EFFORT = 60_000
# A job with less slack than this goes before fairness.
_PRESSING = 2.0
_EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run a job: ``hours`` from its start to its finish, for ``cost`` USD in all. ``pool``: the limited
    capacity whose machines it takes, None where there are always some."""

    name: str
    pool: str | None
    hours: float
    cost: float


@dataclass(frozen=True, slots=True)
class Entry:
    """A job in the queue. ``deadline``: hours from now, negative when it is over; ``handed_in``: hours from now, so
    negative; ``needs``: hours of work left, as far as known."""

    id: str
    team: str
    priority: Priority
    nodes: int
    gpus: int
    options: tuple[Option, ...] = ()
    deadline: float | None = None
    handed_in: float = 0.0
    needs: float = 0.0

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
    """``waiting``: what an hour of it is worth, USD per GPU. ``fairness``: how much each earlier job of its team takes
    from a job's weight; 0 for none. ``running``: how many jobs of each team run already."""

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


def penalty(entries: Iterable[Entry]) -> float:
    """What being late counts for: more than all else together."""
    return 10.0 * sum(max((option.cost for option in entry.options), default=0.0) + 1.0 for entry in entries)


def burden(entry: Entry, option: Option, start: float, weight: float, rules: Rules, late: float) -> float:
    """What the objective has for this job there and then."""
    waits = rules.waiting[entry.priority] * entry.gpus * start
    behind = entry.deadline is not None and start + option.hours > entry.deadline + _EPSILON
    return weight * (option.cost + waits) + (late if behind else 0.0)


def place(
    entries: Sequence[Entry], free: Mapping[str, Free], rules: Rules | None = None, *, effort: int = EFFORT
) -> list[Turn]:
    """A turn for every job, in the order of `in_turn`. ``free``: of every pool that an option names."""
    rules = rules or Rules()
    weight, ordered = weights(entries, rules), in_turn(entries, rules.running)
    profiles = {pool: _Profile(list(of.steps)) for pool, of in free.items()}
    turns: dict[str, Turn] = {}
    for _, tier in groupby(ordered, key=lambda entry: entry.priority):
        jobs = list(tier)
        for turn in _Search(jobs, profiles, weight, rules, effort).best():
            turns[turn.entry.id] = turn
            if turn.option is not None and turn.option.pool is not None:
                profiles[turn.option.pool].take(turn.start, turn.option.hours, turn.entry.nodes)
    return [turns[entry.id] for entry in ordered]


def total(turns: Iterable[Turn], rules: Rules | None = None) -> float:
    """The objective of a round."""
    rules, turns = rules or Rules(), list(turns)
    weight = weights([turn.entry for turn in turns], rules)
    late = {tier: penalty(turn.entry for turn in turns if turn.entry.priority is tier) for tier in TIERS}
    return sum(
        burden(turn.entry, turn.option, turn.start, weight[turn.entry.id], rules, late[turn.entry.priority])
        for turn in turns
        if turn.option is not None
    )


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


class _Profile:
    """Free machines of a pool over time: ``counts[i]`` from ``times[i]`` on."""

    __slots__ = ("counts", "times")

    def __init__(self, steps: Sequence[tuple[float, int]]) -> None:
        merged: dict[float, int] = dict(steps)
        self.times = list(merged)
        self.counts = list(merged.values())

    def copy(self) -> _Profile:
        twin = _Profile(())
        twin.times, twin.counts = self.times[:], self.counts[:]
        return twin

    def earliest(self, hours: float, nodes: int) -> float | None:
        """The first time from which so many are free for so long; None where there never are."""
        times, counts = self.times, self.counts
        start: float | None = None
        for i, count in enumerate(counts):
            if start is not None and times[i] >= start + hours - _EPSILON:
                return start
            if count < nodes:
                start = None
            elif start is None:
                start = times[i]
        return start

    def take(self, start: float, hours: float, nodes: int) -> None:
        first, last = self._cut(start), self._cut(start + hours)
        for i in range(first, last):
            self.counts[i] -= nodes

    def _cut(self, at: float) -> int:
        i = bisect_right(self.times, at + _EPSILON) - 1
        if self.times[i] < at - _EPSILON:
            i += 1
            self.times.insert(i, at)
            self.counts.insert(i, self.counts[i - 1])
        return i


class _Search:
    """The jobs of one priority, with what those of higher ones have left."""

    def __init__(
        self,
        jobs: Sequence[Entry],
        profiles: Mapping[str, _Profile],
        weight: Mapping[str, float],
        rules: Rules,
        effort: int,
    ) -> None:
        late = penalty(jobs)
        self._jobs = [job for job in jobs if job.options]
        self._hopeless = [job for job in jobs if not job.options]
        self._profiles = profiles
        self._cost: Callable[[Entry, Option, float], float] = lambda job, option, start: burden(
            job, option, start, weight[job.id], rules, late
        )
        self._effort = effort

    def best(self) -> list[Turn]:
        """The best that was found."""
        n = len(self._jobs)
        gain = [self._gain(job) for job in self._jobs]
        hours = [min(option.hours for option in job.options) for job in self._jobs]
        starts = [
            list(range(n)),
            sorted(range(n), key=lambda i: (-gain[i], i)),
            sorted(range(n), key=lambda i: (hours[i], i)),
            sorted(range(n), key=lambda i: (-gain[i] * hours[i], i)),
        ]
        found = []
        for order in starts:
            cost, turns = self._decode(order, frozenset())
            found.append((cost, order, turns))
        found.sort(key=lambda one: one[0])
        best_cost, best = found[0][0], found[0][2]
        for _, order, _ in found:
            if n < 2 or self._effort <= 0:
                break
            cost, turns = self._improved(order)
            if cost < best_cost - _EPSILON:
                best_cost, best = cost, turns
        return [*best, *(Turn(job, None, 0.0, late=True) for job in self._hopeless)]

    def _gain(self, job: Entry) -> float:
        """What limited capacity saves it at most, per machine-hour taken."""
        elsewhere = min((self._cost(job, o, 0.0) for o in job.options if o.pool is None), default=math.inf)
        if math.isinf(elsewhere):
            return math.inf
        saved = [
            (elsewhere - self._cost(job, o, 0.0)) / (o.hours * job.nodes) for o in job.options if o.pool is not None
        ]
        return max(saved, default=0.0)

    def _improved(self, order: list[int]) -> tuple[float, list[Turn]]:
        """Exchange two, move one, or send one away from limited capacity, while that helps."""
        away: frozenset[int] = frozenset()
        cost, turns = self._decode(order, away)
        chance = random.Random(len(order))  # noqa: S311  # a seeded search, no secret
        improved = True
        while improved and self._effort > 0:
            improved = False
            moves = list(self._moves(len(order), chance))
            for kind, i, j in moves:
                if self._effort <= 0:
                    break
                tried, sent = order, away
                if kind == 0:
                    sent = away ^ {i}
                elif kind == 1:
                    tried = order[:]
                    tried[i], tried[j] = tried[j], tried[i]
                else:
                    tried = order[:]
                    tried.insert(j, tried.pop(i))
                then, found = self._decode(tried, sent)
                if then < cost - _EPSILON:
                    order, away, cost, turns, improved = tried, sent, then, found, True
        return cost, turns

    def _moves(self, n: int, chance: random.Random) -> Iterable[tuple[int, int, int]]:
        """All of them for a short queue; for a long one as many as there may be time for."""
        if n * n * n <= self._effort:
            moves = [(0, i, i) for i in range(n)]
            moves += [(1, i, j) for i in range(n) for j in range(i)]
            moves += [(2, i, j) for i in range(n) for j in range(n) if abs(i - j) > 1]
            chance.shuffle(moves)
            return moves
        many = max(self._effort // n, 1)
        return [(chance.randrange(3), chance.randrange(n), chance.randrange(n)) for _ in range(many)]

    def _decode(self, order: Sequence[int], away: frozenset[int]) -> tuple[float, list[Turn]]:
        """Place them one after the other; those sent away take limited capacity only where nothing else serves."""
        self._effort -= len(order)
        profiles: dict[str, _Profile] = {}
        cost, turns = 0.0, []
        for i in order:
            job = self._jobs[i]
            best: tuple[bool, float, float, Option] | None = None
            for option in job.options:
                start = 0.0
                unwelcome = i in away and option.pool is not None
                if option.pool is not None:
                    if best is not None and (unwelcome, self._cost(job, option, 0.0)) >= best[:2]:
                        continue  # not even at once would it be better
                    profile = profiles.get(option.pool) or self._profiles[option.pool]
                    at = profile.earliest(option.hours, job.nodes)
                    if at is None:
                        continue
                    start = at
                found = self._cost(job, option, start)
                if best is None or (unwelcome, found) < best[:2]:
                    best = unwelcome, found, start, option
            if best is None:
                turns.append(Turn(job, None, 0.0, late=True))
                continue
            _, found, start, option = best
            cost += found
            late = job.deadline is not None and start + option.hours > job.deadline + _EPSILON
            turns.append(Turn(job, option, start, late))
            if option.pool is not None:
                if option.pool not in profiles:
                    profiles[option.pool] = self._profiles[option.pool].copy()
                profiles[option.pool].take(start, option.hours, job.nodes)
        return cost, turns
