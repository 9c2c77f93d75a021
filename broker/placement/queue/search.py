"""The search of `queue.place`: over the order of jobs, and over jobs that must take a given option (a *hold*).

It starts from good orders, then exchanges jobs, moves jobs and sets holds while that improves the round; then it
perturbs the result and repeats, until the effort is spent. Effort is a number of placements, not a time, so the same
queue gives the same round on every machine.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from broker.placement.queue.queue import (
    EFFORT,
    EPSILON,
    Free,
    QueueEntry,
    QueueOption,
    QueueRules,
    Turn,
    hour_of_waiting,
    latest_start,
    order_by_turn,
    weights,
)

_SHAKES = 2
# A short queue reaches its best round early: the search ends after so many perturbations without an improvement.
_PATIENCE = 30
_MANY = 1_000


class Profile:
    """The free amount of a pool over time: ``counts[i]`` from ``times[i]`` on. All amounts of a pool have one type:
    machines (int) or parts of a machine, which compare and subtract alike."""

    __slots__ = ("counts", "times")

    def __init__(self, steps: Sequence[tuple[float, Any]]) -> None:
        merged: dict[float, Any] = dict(steps)
        self.times = list(merged)
        self.counts = list(merged.values())

    def copy(self) -> Profile:
        duplicate = Profile(())
        duplicate.times, duplicate.counts = self.times[:], self.counts[:]
        return duplicate

    def earliest(self, hours: float, amount: Any) -> float | None:
        """The first time from which the amount is free for ``hours``; None if never."""
        times, counts = self.times, self.counts
        start: float | None = None
        for i, count in enumerate(counts):
            if start is not None and times[i] >= start + hours - EPSILON:
                return start
            if count < amount:
                start = None
            elif start is None:
                start = times[i]
        return start

    def take(self, start: float, hours: float, amount: Any) -> None:
        first, last = self._cut(start), self._cut(start + hours)
        for i in range(first, last):
            self.counts[i] -= amount

    def _cut(self, at: float) -> int:
        i = bisect_right(self.times, at + EPSILON) - 1
        if self.times[i] < at - EPSILON:
            i += 1
            self.times.insert(i, at)
            self.counts.insert(i, self.counts[i - 1])
        return i


Holds = tuple[int | None, ...]  # for each job the place of the option that it is held to


@dataclass(frozen=True, slots=True)
class Round:
    """The value of an order with held jobs. ``late``: number of late jobs."""

    late: int
    cost: float
    order: list[int]
    held_to: Holds
    turns: list[Turn]

    @property
    def objective(self) -> tuple[int, float]:
        return self.late, self.cost


class Search:
    """The search for the jobs of one priority. ``profiles``: the capacity that higher priorities leave; unchanged."""

    def __init__(
        self,
        jobs: Sequence[QueueEntry],
        profiles: Mapping[str, Profile],
        weight: Mapping[str, float],
        rules: QueueRules,
        effort: int,
    ) -> None:
        self._jobs = [job for job in jobs if job.options]
        # Computed once, used millions of times: see `queue.burden` and `queue.latest_start`.
        self._worth = [(weight[job.id], hour_of_waiting(job, rules)) for job in self._jobs]
        self._latest = [[latest_start(job, option) + EPSILON for option in job.options] for job in self._jobs]
        self._hopeless = [job for job in jobs if not job.options]
        self._profiles = profiles
        self._effort = effort

    def best(self) -> list[Turn]:
        n = len(self._jobs)
        gain = [self._gain(i) for i in range(n)]
        hours = [min(option.hours for option in job.options) for job in self._jobs]
        starts = [
            list(range(n)),
            sorted(range(n), key=lambda i: (-gain[i], i)),
            sorted(range(n), key=lambda i: (hours[i], i)),
            sorted(range(n), key=lambda i: (-gain[i] * hours[i], i)),
        ]
        no_holds: Holds = (None,) * n
        best = min((self._decode(order, no_holds) for order in starts), key=_objective)
        if n > 1:
            for order in starts:
                best = min(best, self._improve(order, no_holds), key=_objective)
        rng = random.Random(n)  # noqa: S311  # a seeded search, no secret
        failures = 0
        while n > 1 and self._effort > 0 and failures < _PATIENCE:
            candidate = self._improve(*self._shake(best, rng))
            failures = 0 if candidate.objective < best.objective else failures + 1
            best = min(best, candidate, key=_objective)
        return [*best.turns, *(Turn(job, None, 0.0, late=True) for job in self._hopeless)]

    def _shake(self, current: Round, rng: random.Random) -> tuple[list[int], Holds]:
        """The round with a few random changes, to leave a local optimum."""
        order = current.order[:]
        for _ in range(_SHAKES):
            i, j = rng.randrange(len(order)), rng.randrange(len(order))
            order.insert(j, order.pop(i))
        return order, self._other_hold(current.held_to, rng.randrange(len(order)), rng.randrange(_MANY))

    def _gain(self, i: int) -> float:
        """The maximum saving of job ``i`` on limited capacity, per machine-hour."""
        job, weight = self._jobs[i], self._worth[i][0]
        in_time = [o for o, latest in zip(job.options, self._latest[i], strict=True) if latest >= 0] or job.options
        elsewhere = min((o.weighs for o in in_time if o.pool is None), default=math.inf)
        if math.isinf(elsewhere):
            return math.inf
        savings = [weight * (elsewhere - o.weighs) / (o.hours * job.nodes) for o in in_time if o.pool is not None]
        return max(savings, default=0.0)

    def _improve(self, order: list[int], held_to: Holds) -> Round:
        """The order after exchanges of two jobs, moves of one, and holds, while these improve the round."""
        best = self._decode(order, held_to)
        rng = random.Random(len(order))  # noqa: S311  # a seeded search, no secret
        is_improved = True
        while is_improved and self._effort > 0:
            is_improved = False
            for kind, i, j in self._moves(len(order), rng):
                if self._effort <= 0:
                    break
                candidate_order, candidate_holds = best.order, best.held_to
                if kind == 0:
                    candidate_holds = self._other_hold(candidate_holds, i, j)
                elif kind == 1:
                    candidate_order = candidate_order[:]
                    candidate_order[i], candidate_order[j] = candidate_order[j], candidate_order[i]
                else:
                    candidate_order = candidate_order[:]
                    candidate_order.insert(j, candidate_order.pop(i))
                candidate = self._decode(candidate_order, candidate_holds)
                if candidate.objective < (best.late, best.cost - EPSILON):
                    best, is_improved = candidate, True
        return best

    def _other_hold(self, held_to: Holds, i: int, choice: int) -> Holds:
        """Another hold on job ``i``: one of its options, or none."""
        options = len(self._jobs[i].options)
        choice %= options + 1
        return (*held_to[:i], choice if choice < options else None, *held_to[i + 1 :])

    def _moves(self, n: int, rng: random.Random) -> Iterable[tuple[int, int, int]]:
        """All moves of a short queue; for a long one, a random sample."""
        if n * n * n <= self._effort:
            moves = [(0, i, j) for i in range(n) for j in range(len(self._jobs[i].options) + 1)]
            moves += [(1, i, j) for i in range(n) for j in range(i)]
            moves += [(2, i, j) for i in range(n) for j in range(n) if abs(i - j) > 1]
            rng.shuffle(moves)
            return moves
        sample_size = max(self._effort // n, 1)
        return [(rng.randrange(3), rng.randrange(n), rng.randrange(n)) for _ in range(sample_size)]

    def _decode(self, order: list[int], held_to: Holds) -> Round:
        """Place jobs in order, in time if possible, on the held option if there is one."""
        self._effort -= len(order)
        profiles: dict[str, Profile] = {}
        late, cost, turns = 0, 0.0, []
        for i in order:
            job, (weight, hour), latest = self._jobs[i], self._worth[i], self._latest[i]
            best: tuple[bool, bool, float, float, QueueOption] | None = None
            for number, option in enumerate(job.options):
                off_hold = held_to[i] is not None and held_to[i] != number
                start = 0.0
                if option.pool is not None:
                    if best is not None and (latest[number] < 0, off_hold, weight * option.weighs) >= best[:3]:
                        continue  # not better even if it starts at once
                    profile = profiles.get(option.pool) or self._profiles[option.pool]
                    earliest = profile.earliest(option.hours, option.takes(job.nodes))
                    if earliest is None:
                        continue
                    start = earliest
                value = start > latest[number], off_hold, weight * (option.weighs + hour * start)
                if best is None or value < best[:3]:
                    best = *value, start, option
            if best is None:
                turns.append(Turn(job, None, 0.0, late=True))
                continue
            is_late, _, weighs, start, option = best
            late += is_late
            cost += weighs
            turns.append(Turn(job, option, start, is_late))
            if option.pool is not None:
                if option.pool not in profiles:
                    profiles[option.pool] = self._profiles[option.pool].copy()
                profiles[option.pool].take(start, option.hours, option.takes(job.nodes))
        return Round(late, cost, order, held_to, turns)


def _objective(candidate: Round) -> tuple[int, float]:
    return candidate.objective


def place(
    entries: Sequence[QueueEntry], free: Mapping[str, Free], rules: QueueRules | None = None, *, effort: int = EFFORT
) -> list[Turn]:
    """A turn for every job, in the order of `order_by_turn`. ``free``: every pool that an option names."""
    from broker.placement.queue.search import Profile, Search  # here, because it imports this module

    rules = rules or QueueRules()
    weight, ordered = weights(entries, rules), order_by_turn(entries, rules.running)
    profiles = {pool: Profile(list(pool_free.steps)) for pool, pool_free in free.items()}
    turns: dict[str, Turn] = {}
    for _, tier in groupby(ordered, key=lambda entry: entry.priority):
        jobs = list(tier)
        for turn in Search(jobs, profiles, weight, rules, effort).best():
            turns[turn.entry.id] = turn
            if turn.option is not None and turn.option.pool is not None:
                amount = turn.option.takes(turn.entry.nodes)
                profiles[turn.option.pool].take(turn.start, turn.option.hours, amount)
    return [turns[entry.id] for entry in ordered]
