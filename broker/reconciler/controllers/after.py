"""Jobs that wait for others (`after` in the job file): each begins once its predecessors have ended in the required
state, and ends if one ended otherwise.

A job holds no money while it waits, and is judged as any other job when it is placed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from broker.core.events import events as ev
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import AwaitsJobs, PredecessorFailed, same_reason
from broker.core.job.jobs import Predecessor, When
from broker.ledger.journal import Journal, append_if
from broker.reconciler.controller import AtRest, Controller, ControllerResult, DecideAnew, JobContext


@dataclass(frozen=True, slots=True)
class Standing:
    """The states of a job's predecessors.

    ``waits_for``: those that have not ended; ``failed``: the first that ended in another state than required, with that
    state.
    """

    waits_for: tuple[str, ...] = ()
    failed: tuple[str, JobState] | None = None


def standing(before: Sequence[Predecessor], states: Mapping[str, JobState]) -> Standing:
    """The states of the predecessors; one without a known state counts as not ended. Pure."""
    waits_for: list[str] = []
    for one in before:
        state = states.get(one.job)
        if state is None or not state.final:
            waits_for.append(one.job)
        elif one.when is When.SUCCEEDED and state is not JobState.SUCCEEDED:
            return Standing(failed=(one.job, state))
    return Standing(tuple(dict.fromkeys(waits_for)))


class ComingAfter(Controller):
    """Lets jobs begin whose predecessors have ended as required, and ends jobs of which a predecessor has not."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def goes_by(self, about: JobContext) -> Hashable:
        """The states of the predecessors."""
        found = self._standing(about.view)
        return found.waits_for, found.failed

    def reconcile(self, about: JobContext) -> ControllerResult:
        """Record that the job may begin, that it never will, or which jobs it waits for. Raises `NoLongerCurrent`."""
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
