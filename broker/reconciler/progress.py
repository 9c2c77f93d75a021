"""A job's progress, from its events: useful work at each checkpoint, remaining work, machine time used. Pure.

Work is measured in time on the job's reference machine: an attempt's running time times its throughput. What ran after
the last durable checkpoint of an attempt that did not finish is lost and does not count.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from broker.core.events.outcomes import Next
from broker.core.events.views import AttemptView, JobView
from broker.core.values.money import Money

_HOUR = timedelta(hours=1)


def work_at_checkpoints(view: JobView) -> dict[str, timedelta]:
    """Useful work at each checkpoint, by id."""
    work_by_checkpoint: dict[str, timedelta] = {}
    for attempt in view.attempts:
        if attempt.running_at is None:
            continue
        base = work_by_checkpoint.get(attempt.resumed_from or "", timedelta(0))
        for checkpoint in attempt.checkpoints:
            run_time = max(checkpoint.at - attempt.running_at, timedelta(0))
            work_by_checkpoint[checkpoint.id] = base + run_time * attempt.placement.throughput
    return work_by_checkpoint


def work_done(view: JobView) -> timedelta:
    """Useful work that would survive a stop now; all of it once the job succeeded."""
    work_by_checkpoint = work_at_checkpoints(view)
    latest = view.latest
    if latest is not None and latest.next is Next.SUCCEED and latest.running_at and latest.ended_at:
        run_time = latest.ended_at - latest.running_at
        return work_by_checkpoint.get(latest.resumed_from or "", timedelta(0)) + run_time * latest.placement.throughput
    newest = view.checkpoint
    return work_by_checkpoint.get(newest.id, timedelta(0)) if newest else timedelta(0)


def remaining_work(view: JobView) -> timedelta | None:
    """Work left from the last durable checkpoint; None if the job does not state its work.

    At least a minute: `work` is an estimate, and an unfinished job has some work left.
    """
    if view.work is None:
        return None
    return max(view.work - work_done(view), timedelta(minutes=1))


def machine_time(attempt: AttemptView, now: datetime) -> timedelta:
    """Time the attempt's machine existed so far, until it was known to be gone."""
    if attempt.up_since is None:
        return timedelta(0)
    until = attempt.gone_at if attempt.gone and attempt.gone_at else now
    return max(until - attempt.up_since, timedelta(0))


def billed_time(view: JobView, now: datetime) -> timedelta:
    """Machine time over all attempts, without that of standbys before their turn: what ``max_duration`` limits."""
    carriers = (
        replace(a, up_since=max(a.up_since, a.handed_at)) if a.up_since and a.handed_at else a
        for a in view.attempts
        if a.standby_until is None
    )
    return sum((machine_time(attempt, now) for attempt in carriers), timedelta(0))


def lost_by_stop(view: JobView, now: datetime) -> timedelta:
    """Machine time that a running job would repeat if it were stopped now: since its newest durable checkpoint, or
    since its start, and the usual time from machine to command of its resumed attempts, else of all.

    A job that promises a checkpoint at an interval counts as keeping it, so that not saving is no protection.
    """
    starts = [(a, a.running_at) for a in view.attempts if a.running_at is not None]
    latest, started = starts[-1]
    since = max(now - max([started, *(checkpoint.at for checkpoint in latest.checkpoints)]), timedelta(0))
    resumed = [start for start in starts if start[0].resumed_from]
    usual = median((at - (a.up_since or a.requested_at)) / _HOUR for a, at in resumed or starts)
    return min(since, view.job.checkpoint.every or since) + max(usual, 0) * _HOUR


def steps_redone(attempts: Iterable[AttemptView]) -> dict[int, int]:
    """Training steps that an attempt did again, by its number: reached before an interruption, but not in the
    checkpoint that it resumed from."""
    started = [attempt for attempt in attempts if attempt.running_at is not None]
    return {
        later.number: max(earlier.last_step - (later.resumed_step or 0), 0)
        for earlier, later in pairwise(started)
        if earlier.last_step is not None
    }


def on_demand_cost(view: JobView) -> Money | None:
    """The cost of the work done (USD) on the cheapest on-demand placement at submission; None if there was none.

    The same useful work at that placement's throughput, plus the measured start-up of the job's first and removal of
    its last machine. Savings are the difference to the actual cost, and may be negative.
    """
    if view.on_demand is None:
        return None
    started = [a for a in view.attempts if a.running_at is not None and a.up_since is not None]
    if not started:
        return Money.ZERO
    first, last = started[0], started[-1]
    start_up = max((first.running_at or first.requested_at) - (first.up_since or first.requested_at), timedelta(0))
    removal = timedelta(0)
    if last.gone_at is not None and last.ended_at is not None:
        removal = max(last.gone_at - last.ended_at, timedelta(0))
    return view.on_demand.rate.for_duration(work_done(view) / view.on_demand.throughput + start_up + removal)
