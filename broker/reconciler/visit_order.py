"""The order in which open jobs are visited (running ones first, as their end frees capacity, then waiting ones in queue
order), and the result of placing the whole queue for one job in it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import reduce
from operator import sub
from typing import Any

from broker.core.events.outcomes import AttemptState, JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import QueueTurn
from broker.core.market.offers import BOUGHT
from broker.core.market.shares import MachineShare
from broker.core.values.money import Money
from broker.placement.queue.preemption import RunningJob
from broker.placement.queue.queue import EPSILON, Amount, Free, QueueEntry, Turn, hour_of_running
from broker.placement.queue.queue import order_by_turn as entries_in_turn
from broker.reconciler.controllers.placement import QueueDecision
from broker.reconciler.progress import lost_by_stop, remaining_work

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_WAITING = (JobState.QUEUED, JobState.PLANNED, JobState.INTERRUPTED)


def queue_decision(
    job_id: str, turns: Sequence[Turn], free: Mapping[str, Free], waited: timedelta, longest: timedelta | None
) -> QueueDecision:
    """A job's result of one round of the queue (`broker.placement.queue.search.place`) over the capacity ``free``.

    The job waits for its turn on a limited pool if it has no other option, or if its policy allows the wait:
    ``longest`` in total, of which ``waited`` has passed. Machines that are free now are reserved for others if the job
    would occupy them beyond the start of another job's turn.
    """
    own_turn = next((turn for turn in turns if turn.entry.id == job_id), None)
    if own_turn is None or own_turn.option is None:
        return QueueDecision()
    option = own_turn.option
    starts_now = option.pool is not None and own_turn.start <= EPSILON
    reserved = frozenset(
        pool
        for pool in free
        if not (starts_now and pool == option.pool) and not _has_unreserved(pool, own_turn, turns, free[pool])
    )
    if starts_now:
        return QueueDecision(option.name, reserved)
    if option.pool is None:
        return QueueDecision(taken=reserved)
    has_only_pools = all(other.pool is not None for other in own_turn.entry.options)
    start = timedelta(hours=own_turn.start)
    if has_only_pools or (longest is not None and waited + start <= longest):
        return QueueDecision(taken=reserved, wait=QueueTurn(pool=option.pool))
    return QueueDecision(taken=reserved)


def decision_outside_round(view: JobView, turns: Iterable[Turn], free: Mapping[str, Free]) -> QueueDecision:
    """The result for a job outside the round: it may use machines that stay free as long as it may run."""
    other_turns, needs = list(turns), (remaining_work(view) or view.max_duration) / _HOUR
    return QueueDecision(
        taken=frozenset(
            pool for pool in free if not _has_spare(free[pool], _reserved_amounts(pool, other_turns, needs), view)
        )
    )


def _has_spare(free: Free, promised: Sequence[Amount], view: JobView) -> bool:
    """Whether enough machines remain for the job.

    Of a shared machine, nothing remains if another job waits for a part: the part that this job needs is not known
    here.
    """
    free_now = free.steps[0][1]
    return not promised if isinstance(free_now, MachineShare) else _subtract(free_now, promised) >= view.job.num_nodes


def _has_unreserved(pool: str, own_turn: Turn, turns: Sequence[Turn], free: Free) -> bool:
    """Whether enough free machines of the pool remain unreserved for as long as the job needs them."""
    options = [option for option in own_turn.entry.options if option.pool == pool]
    needs = max((option.hours for option in options), default=own_turn.entry.needs)
    other_turns = (turn for turn in turns if turn is not own_turn)
    left = _subtract(free.steps[0][1], _reserved_amounts(pool, other_turns, needs))
    amounts: list[Any] = [option.takes(own_turn.entry.nodes) for option in options] or [own_turn.entry.nodes]
    return not isinstance(left, type(amounts[0])) or all(left >= amount for amount in amounts)


def _reserved_amounts(pool: str, turns: Iterable[Turn], hours: float) -> list[Amount]:
    """The amounts of the pool that become another job's turn within that many hours."""
    return [
        turn.option.takes(turn.entry.nodes)
        for turn in turns
        if turn.option is not None and turn.option.pool == pool and turn.start < hours
    ]


def _subtract(amount: Any, promised: Iterable[Amount]) -> Any:
    return reduce(sub, promised, amount)


def waits_for_machine(view: JobView) -> bool:
    """Whether the job waits only for a machine."""
    may_begin = not view.cancel_requested and not view.awaits_predecessors
    return view.state in _WAITING and may_begin and all(attempt.over for attempt in view.attempts)


def running_jobs(views: Iterable[JobView], value_of_time: Money | None, now: datetime) -> Iterator[RunningJob]:
    """The jobs that could give way: their commands run on owned or reserved machines, and nobody works in them.
    ``value_of_time``: the policies' default (USD per hour)."""
    for view in views:
        attempt, job = view.latest, view.job
        if attempt is None or attempt.running_at is None or attempt.state is not AttemptState.RUNNING or job.session:
            continue
        placement = attempt.placement
        if placement.offer.capacity_type not in BOUGHT:
            continue
        lost = hour_of_running(job, placement, value_of_time).for_duration(lost_by_stop(view, now))
        stops = [other.stop_requested_at for other in view.attempts if other.gave_way and other.stop_requested_at]
        ran, gave_way = now - attempt.running_at, sum(now - at < _DAY for at in stops)
        capacity, amount = placement.offer.capacity, placement.amount
        yield RunningJob(view.id, attempt.number, job.priority, capacity, amount, lost, ran, gave_way, job.team)


def running_by_team(views: Iterable[JobView]) -> Counter[str]:
    """The number of jobs with a machine, by team."""
    return Counter(view.job.team or "" for view in views if any(not attempt.over for attempt in view.attempts))


def visit_order(views: Iterable[JobView], now: datetime) -> list[JobView]:
    """The jobs in the order of visits: see `broker.placement.queue.queue.order_by_turn`."""
    views = list(views)
    waiting = {view.id: view for view in views if waits_for_machine(view)}
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
