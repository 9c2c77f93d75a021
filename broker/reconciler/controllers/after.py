"""Jobs that come after others: each begins once those before it have ended as it asks, or is given up.

It holds no money while it waits. It is judged as any other job when it is placed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from broker.core.events import events as ev
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import AwaitsJobs, PredecessorFailed, same_reason
from broker.core.job.after import Predecessor, When
from broker.ledger.journal import Journal, append_if
from broker.reconciler.controller import AtRest, Controller, ControllerResult, DecideAnew, JobContext


@dataclass(frozen=True, slots=True)
class Standing:
    """How the jobs before stand. ``waits_for``: those that are still to end; ``failed``: the first that ended
    otherwise than it had to, with its state."""

    waits_for: tuple[str, ...] = ()
    failed: tuple[str, JobState] | None = None


def standing(before: Sequence[Predecessor], states: Mapping[str, JobState]) -> Standing:
    """How they stand, by the states of the jobs; one without a state is waited for. Pure."""
    waits_for: list[str] = []
    for one in before:
        state = states.get(one.job)
        if state is None or not state.final:
            waits_for.append(one.job)
        elif one.when is When.SUCCEEDED and state is not JobState.SUCCEEDED:
            return Standing(failed=(one.job, state))
    return Standing(tuple(dict.fromkeys(waits_for)))


class ComingAfter(Controller):
    """Lets jobs begin whose predecessors have ended, and ends those whose predecessors have failed."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def goes_by(self, about: JobContext) -> Hashable:
        """How the jobs before stand."""
        found = self._standing(about.view)
        return found.waits_for, found.failed

    def reconcile(self, about: JobContext) -> ControllerResult:
        """Record that the job may begin, that it never will, or what it waits for. Raises `NoLongerCurrent`."""
        view, now, found = about.view, about.now, self._standing(about.view)
        if found.failed is not None:
            job, state = found.failed
            ended = ev.JobEnded(state=JobState.CANCELLED, reason=PredecessorFailed(job=job, state=state))
            append_if(self._journal, view, [(None, ended)], now)
            return DecideAnew()
        if not found.waits_for:
            append_if(self._journal, view, [(None, ev.PredecessorsEnded())], now)
            return DecideAnew()
        reason = AwaitsJobs(jobs=found.waits_for)
        if not same_reason(reason, view.waiting):
            append_if(self._journal, view, [(None, ev.NothingFeasible(reason=reason))], now)
        return AtRest()

    def _standing(self, view: JobView) -> Standing:
        with self._journal.reading() as look:
            found = look.views([one.job for one in view.job.after])
        return standing(view.job.after, {one.id: one.state for one in found})
