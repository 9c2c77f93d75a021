"""In which order open jobs are looked at: what runs first, as its end frees capacity, then who waits, in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from broker.core.outcomes import JobState
from broker.core.views import JobView
from broker.launch.progress import remaining_work
from broker.placement.queue import Entry
from broker.placement.queue import in_turn as entries_in_turn

_HOUR = timedelta(hours=1)
_WAITING = (JobState.QUEUED, JobState.PLANNED, JobState.INTERRUPTED)


def waits(view: JobView) -> bool:
    """Whether the job waits for a machine, and for nothing else."""
    return view.state in _WAITING and not view.cancel_requested and all(attempt.over for attempt in view.attempts)


def running_by_team(views: Iterable[JobView]) -> Counter[str]:
    """How many jobs of each team have a machine."""
    return Counter(view.job.team or "" for view in views if any(not attempt.over for attempt in view.attempts))


def in_turn(views: Iterable[JobView], now: datetime) -> list[JobView]:
    """The jobs in the order in which they are to be looked at: see `broker.placement.queue.in_turn`."""
    views = list(views)
    waiting = {view.id: view for view in views if waits(view)}
    ordered = entries_in_turn([_entry(view, now) for view in waiting.values()], running_by_team(views))
    return [view for view in views if view.id not in waiting] + [waiting[entry.id] for entry in ordered]


def _entry(view: JobView, now: datetime) -> Entry:
    left = remaining_work(view)
    return Entry(
        id=view.id,
        team=view.job.team or "",
        priority=view.job.priority,
        nodes=view.job.num_nodes,
        gpus=0,
        deadline=None if view.deadline is None else (view.deadline - now) / _HOUR,
        handed_in=(view.submitted_at - now) / _HOUR,
        needs=0.0 if left is None else left / _HOUR,
    )
