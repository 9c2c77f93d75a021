"""Which running jobs give way to a waiting job of higher priority, such that the least work is lost. Pure.

Only the first waiting job of a pool may take places there: what becomes free goes to it. It takes the places of jobs
of strictly lower priority, if its wait costs more than their stops. A test compares the choice with all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

from broker.core.job.jobs import Priority
from broker.core.market.shares import MachineShare
from broker.core.ports import PreemptionRight
from broker.core.values.money import Money
from broker.placement.queue.queue import (
    EPSILON,
    STOP_HOURS,
    TIERS,
    Amount,
    Free,
    QueueOption,
    QueueRules,
    Turn,
    hour_of_waiting,
)

# Combinations of freed CPUs, memory and GPUs of a divided machine that are compared; a pool of 64 machines has 65.
_MAX_COMBINATIONS = 4096


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that runs on limited capacity. ``amount``: what it occupies of the ``pool``; ``lost``: the cost (USD) of
    the work that it would repeat if it were stopped now; ``ran``: how long its attempt has run; ``gave_way``: how often
    it gave way in the last 24 hours."""

    id: str
    attempt: int
    priority: Priority
    pool: str
    amount: Amount
    lost: Money
    ran: timedelta
    gave_way: int = 0
    team: str | None = None

    def may_give_way(self, priority: Priority, right: PreemptionRight) -> bool:
        """Whether a job of this priority may take its place."""
        is_lower = TIERS.index(self.priority) > TIERS.index(priority)
        return is_lower and self.ran >= right.min_runtime and self.gave_way < right.per_day


@dataclass(frozen=True, slots=True)
class Preemption:
    """The places of ``jobs``, which a waiting job could take on ``option`` by its ``right``. ``lost``: the cost of the
    work that they repeat; ``worth``: that of the wait which it avoids (both USD). ``others``: jobs left out here."""

    right: PreemptionRight
    option: QueueOption
    jobs: tuple[RunningJob, ...]
    lost: Money
    worth: Money
    others: int = 0

    @property
    def pays(self) -> bool:
        return self.lost < self.worth

    def visible_to(self, teams: Collection[str | None]) -> Preemption:
        """As people see it who may see the jobs of these teams only: of others the number."""
        jobs = tuple(job for job in self.jobs if job.team in teams)
        return replace(self, jobs=jobs, others=len(self.jobs) - len(jobs))


def preemptions(
    turns: Sequence[Turn],
    free: Mapping[str, Free],
    running: Iterable[RunningJob],
    rights: Mapping[Priority, PreemptionRight],
    rules: QueueRules,
) -> dict[str, Preemption]:
    """By waiting job, the places that it could take at the least loss, whether that pays or not. ``turns``: a round of
    the queue over ``free``, in its order. Nobody gives way to two jobs."""
    free_now: dict[str, Any] = {pool: pool_free.steps[0][1] for pool, pool_free in free.items()}
    waiting: dict[str, Turn] = {}  # the first of each pool
    for turn in turns:
        if turn.option is None or turn.option.pool is None:
            continue
        if turn.start <= EPSILON:
            free_now[turn.option.pool] -= turn.option.takes(turn.entry.nodes)
        else:
            waiting.setdefault(turn.option.pool, turn)
    candidates, results = list(running), dict[str, Preemption]()
    for turn in list(waiting.values()):
        entry, right, now_there = turn.entry, rights.get(turn.entry.priority), cast("QueueOption", turn.option)
        if right is None or turn.start <= STOP_HOURS:  # capacity that is about to be free is worth no stop
            continue
        wait_cost = hour_of_waiting(entry, rules) * (turn.start - STOP_HOURS)
        suitable = [job for job in candidates if job.may_give_way(entry.priority, right)]
        choices: list[Preemption] = []
        for option in entry.options:
            if option.pool is None or waiting.get(option.pool, turn) is not turn:
                continue
            takes: Any = option.takes(entry.nodes)
            jobs = least_lost((job for job in suitable if job.pool == option.pool), takes - free_now[option.pool])
            if jobs:
                worth = Money(round((wait_cost - option.weighs + now_there.weighs) * 1e6))
                choices.append(Preemption(right, option, jobs, sum((job.lost for job in jobs), Money.ZERO), worth))
        if choices:
            best = results[entry.id] = max(choices, key=lambda choice: choice.worth - choice.lost)
            candidates = [job for job in candidates if job not in best.jobs] if best.pays else candidates
            waiting.setdefault(str(best.option.pool), turn)
    return results


def least_lost(jobs: Iterable[RunningJob], missing: Any) -> tuple[RunningJob, ...] | None:
    """The jobs that together free the ``missing`` amount and lose the least; of several such sets one of the fewest
    jobs. None if all together do not free as much.

    Exact for machines, and for parts of one up to `_MAX_COMBINATIONS`.
    """
    nothing, missing = (0, max(missing, 0)) if isinstance(missing, int) else (MachineShare(), missing.at_most(missing))
    best: dict[Any, tuple[Money, int, tuple[RunningJob, ...]]] = {nothing: (Money.ZERO, 0, ())}
    for job in sorted(jobs, key=lambda job: (job.lost, job.id)):
        for freed, (lost, count, chosen) in list(best.items()):
            total: Any = freed + job.amount
            total = min(total, missing) if isinstance(missing, int) else total.at_most(missing)
            candidate = lost + job.lost, count + 1, (*chosen, job)
            has_room = total == missing or len(best) < _MAX_COMBINATIONS
            if candidate[:2] < best[total][:2] if total in best else has_room:
                best[total] = candidate
    return best[missing][2] if missing in best else None
