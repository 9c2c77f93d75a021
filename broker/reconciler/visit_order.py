"""The order in which open jobs are visited (running ones first, as their end frees capacity, then waiting ones in queue
order), and the result of placing the whole queue for one job in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import reduce
from operator import sub
from typing import Any

from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import QueueTurn
from broker.core.market.shares import MachineShare
from broker.placement.queue.queue import EPSILON, Amount, Free, QueueEntry, Turn
from broker.placement.queue.queue import in_turn as entries_in_turn
from broker.reconciler.controllers.placement import QueueDecision
from broker.reconciler.progress import remaining_work

_HOUR = timedelta(hours=1)
_WAITING = (JobState.QUEUED, JobState.PLANNED, JobState.INTERRUPTED)


def queue_decision(
    job_id: str, turns: Sequence[Turn], free: Mapping[str, Free], waited: timedelta, longest: timedelta | None
) -> QueueDecision:
    """A job's result of one round of the queue (`broker.placement.queue.queue.place`) over the capacity ``free``.

    The job waits for its turn on a limited pool if it has no other option, or if its policy allows the wait:
    ``longest`` in total, of which ``waited`` has passed. Machines that are free now are reserved for others if the job
    would occupy them beyond the start of another job's turn.
    """
    mine = next((turn for turn in turns if turn.entry.id == job_id), None)
    if mine is None or mine.option is None:
        return QueueDecision()
    option = mine.option
    now = option.pool is not None and mine.start <= EPSILON
    taken = frozenset(
        pool for pool in free if not (now and pool == option.pool) and not _left_over(pool, mine, turns, free[pool])
    )
    if now:
        return QueueDecision(option.name, taken)
    if option.pool is None:
        return QueueDecision(taken=taken)
    alone = all(other.pool is not None for other in mine.entry.options)
    start = timedelta(hours=mine.start)
    if alone or (longest is not None and waited + start <= longest):
        return QueueDecision(taken=taken, wait=QueueTurn(pool=option.pool))
    return QueueDecision(taken=taken)


def queue_decision_beside(view: JobView, turns: Iterable[Turn], free: Mapping[str, Free]) -> QueueDecision:
    """The result for a job outside the round: it may use machines that stay free as long as it may run."""
    others, needs = list(turns), (remaining_work(view) or view.max_duration) / _HOUR
    return QueueDecision(
        taken=frozenset(pool for pool in free if not _spare(free[pool], _promised(pool, others, needs), view))
    )


def _spare(free: Free, promised: Sequence[Amount], view: JobView) -> bool:
    """Whether enough machines remain for the job.

    Of a shared machine, nothing remains if another job waits for a part: the part that this job needs is not known
    here.
    """
    now = free.steps[0][1]
    return not promised if isinstance(now, MachineShare) else _less(now, promised) >= view.job.num_nodes


def _left_over(pool: str, mine: Turn, turns: Sequence[Turn], free: Free) -> bool:
    """Whether enough free machines of the pool remain unreserved for as long as the job needs them."""
    options = [option for option in mine.entry.options if option.pool == pool]
    needs = max((option.hours for option in options), default=mine.entry.needs)
    others = (turn for turn in turns if turn is not mine)
    left = _less(free.steps[0][1], _promised(pool, others, needs))
    wanted: list[Any] = [option.takes(mine.entry.nodes) for option in options] or [mine.entry.nodes]
    return not isinstance(left, type(wanted[0])) or all(left >= one for one in wanted)


def _promised(pool: str, turns: Iterable[Turn], hours: float) -> list[Amount]:
    """The amounts of the pool that become another job's turn within that many hours."""
    return [
        turn.option.takes(turn.entry.nodes)
        for turn in turns
        if turn.option is not None and turn.option.pool == pool and turn.start < hours
    ]


def _less(now: Any, promised: Iterable[Amount]) -> Any:
    return reduce(sub, promised, now)


def waits(view: JobView) -> bool:
    """Whether the job waits only for a machine."""
    free = not view.cancel_requested and not view.comes_later
    return view.state in _WAITING and free and all(attempt.over for attempt in view.attempts)


def running_by_team(views: Iterable[JobView]) -> Counter[str]:
    """The number of jobs with a machine, by team."""
    return Counter(view.job.team or "" for view in views if any(not attempt.over for attempt in view.attempts))


def in_turn(views: Iterable[JobView], now: datetime) -> list[JobView]:
    """The jobs in the order of visits: see `broker.placement.queue.queue.in_turn`."""
    views = list(views)
    waiting = {view.id: view for view in views if waits(view)}
    ordered = entries_in_turn([_entry(view, now) for view in waiting.values()], running_by_team(views))
    return [view for view in views if view.id not in waiting] + [waiting[entry.id] for entry in ordered]


def _entry(view: JobView, now: datetime) -> QueueEntry:
    left = remaining_work(view)
    return QueueEntry(
        id=view.id,
        team=view.job.team or "",
        priority=view.job.priority,
        nodes=view.job.num_nodes,
        gpus=0,
        deadline=None if view.deadline is None else (view.deadline - now) / _HOUR,
        handed_in=(view.submitted_at - now) / _HOUR,
        needs=0.0 if left is None else left / _HOUR,
    )
