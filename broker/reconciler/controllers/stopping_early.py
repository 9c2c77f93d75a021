"""Stops tasks of arrays that are far behind the other tasks, as `stop_when` in the job file requests.

The task saves a checkpoint and stops, its machine is ended and its hold is released. It counts neither as failed nor as
cancelled, and the array continues.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from broker.core.events import events as ev
from broker.core.events.outcomes import AttemptState, Cause
from broker.core.events.wait_reasons import BehindOthers
from broker.core.job.stop_when import RunningAverage, StopWhen, fallen_behind, running_average
from broker.ledger.journal import Journal, Reading, append_if
from broker.reconciler.controller import AtRest, Controller, ControllerResult, DecideAnew, JobContext

_STALE = 6  # in intervals between judgements: how often tasks that have succeeded since are read


@dataclass(slots=True)
class _Succeeded:
    """The reports of the tasks of an array that had succeeded ``at`` that time (UTC). They never change."""

    at: datetime
    averages: dict[str, RunningAverage] = field(default_factory=dict)


class StoppingEarly(Controller):
    """Judges running tasks of arrays with `stop_when`. ``every``: the interval between judgements of a task, in broker
    time."""

    def __init__(self, journal: Journal, every: timedelta = timedelta(seconds=5)) -> None:
        self._journal = journal
        self._every = every
        self._succeeded: dict[str, _Succeeded] = {}
        self._judged: dict[str, tuple[int, int]] = {}  # by task: its last event's number, and how many had succeeded

    def goes_by(self, about: JobContext) -> int | None:
        """The attempt that runs."""
        view, latest = about.view, about.view.latest
        if view.job.stop_when is None or view.job.task is None or latest is None or view.cancel_requested:
            return None
        return latest.number if latest.state is AttemptState.RUNNING and latest.stop_requested is None else None

    def reconcile(self, about: JobContext) -> ControllerResult:
        """Stop the attempt if the task has fallen behind. Raises `NoLongerCurrent` and `StoreProblem`."""
        view, now = about.view, about.now
        rule, task, latest = view.job.stop_when, view.job.task, view.latest
        assert rule is not None, "else it goes by nothing"
        assert task is not None, "else it goes by nothing"
        assert latest is not None, "else it goes by nothing"
        with self._journal.reading() as look:
            others = self._averages(look, task.array, rule, now)
            judged = view.seq, len(others)
            if self._judged.get(view.id) == judged or len(others) < rule.min_tasks:
                return AtRest(now + self._every)
            mine = look.reported([view.id], rule.metric).get(view.id, ())
        behind = fallen_behind(rule, mine, others)
        if behind is None:
            self._judged[view.id] = judged
            return AtRest(now + self._every)
        reason = BehindOthers(
            metric=rule.metric,
            goal=rule.goal,
            step=behind.step,
            best=behind.best,
            median=behind.median,
            tasks=behind.tasks,
        )
        stop = ev.StopRequested(cause=Cause.STOPPED_EARLY, by="stop_when", reason=reason)
        append_if(self._journal, view, [(latest.number, stop)], now)
        return DecideAnew()

    def forget(self, key: str) -> None:
        """As `Controller.forget`: of a task, or of an array."""
        self._judged.pop(key, None)
        self._succeeded.pop(key, None)

    def _averages(self, look: Reading, array: str, rule: StopWhen, now: datetime) -> Collection[RunningAverage]:
        """The averages of the tasks that have succeeded, as last read."""
        known = self._succeeded.get(array)
        if known is None:
            known = self._succeeded[array] = _Succeeded(now)
        elif timedelta(0) <= now - known.at < self._every * _STALE:
            return known.averages.values()
        new = [id for id in look.tasks_succeeded(array) if id not in known.averages]
        told = look.reported(new, rule.metric)
        known.averages.update({id: running_average(told.get(id, ())) for id in new})
        known.at = now
        return known.averages.values()
