"""Jobs that wait for others (`after` in the job file): each begins once its predecessors have ended in the required
state, and ends if one ended otherwise.

A job holds no money while it waits, and is judged as any other job when it is placed.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from broker.core.events import events as ev
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import AwaitsJobs, PredecessorFailed
from broker.core.job.jobs import Predecessor, When
from broker.reconciler.controller import AtRest, Controller, ControllerResult, DecideAnew, JobContext, note_wait
from broker.store.store import Store, append_if


@dataclass(frozen=True, slots=True)
class PredecessorStates:
    """The states of a job's predecessors.

    ``waits_for``: those that have not ended; ``failed``: the first that ended in another state than required, with that
    state.
    """

    waits_for: tuple[str, ...] = ()
    failed: tuple[str, JobState] | None = None


def predecessor_states(predecessors: Sequence[Predecessor], states: Mapping[str, JobState]) -> PredecessorStates:
    """The states of the predecessors; one without a known state counts as not ended. Pure."""
    waits_for: list[str] = []
    for predecessor in predecessors:
        state = states.get(predecessor.job)
        if state is None or not state.final:
            waits_for.append(predecessor.job)
        elif predecessor.when is When.SUCCEEDED and state is not JobState.SUCCEEDED:
            return PredecessorStates(failed=(predecessor.job, state))
    return PredecessorStates(tuple(dict.fromkeys(waits_for)))


class AwaitPredecessors(Controller):
    """Lets jobs begin whose predecessors have ended as required, and ends jobs of which a predecessor has not."""

    def __init__(self, journal: Store) -> None:
        self._journal = journal

    def goes_by(self, about: JobContext) -> Hashable:
        states = self._standing(about.view)
        return states.waits_for, states.failed

    def reconcile(self, about: JobContext) -> ControllerResult:
        """Record that the job may begin, that it never will, or which jobs it waits for. Raises `NoLongerCurrent`."""
        view, now, states = about.view, about.now, self._standing(about.view)
        if states.failed is not None:
            job, state = states.failed
            end_event = ev.JobEnded(state=JobState.CANCELLED, reason=PredecessorFailed(job=job, state=state))
            append_if(self._journal, view, [(None, end_event)], now)
            return DecideAnew()
        if not states.waits_for:
            append_if(self._journal, view, [(None, ev.PredecessorsEnded())], now)
            return DecideAnew()
        note_wait(self._journal, view, AwaitsJobs(jobs=states.waits_for), now)
        return AtRest()

    def _standing(self, view: JobView) -> PredecessorStates:
        jobs = [item.job for item in view.job.after]
        with self._journal.reading() as snapshot:
            arrays = snapshot.views([id.rpartition("-")[0] for id in jobs])
            states = {item.id: item.state for item in snapshot.views(jobs)}
        for array in arrays:  # a task that has not begun when its array ends never begins
            states |= {id: array.state for id in jobs if id.rpartition("-")[0] == array.id and id not in states}
        return predecessor_states(view.job.after, states)
