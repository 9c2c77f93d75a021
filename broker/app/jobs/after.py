"""Jobs that wait for others: which jobs these are, and in which order a graph of jobs is submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from broker.app.jobs import jobs
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput, NotAllowed
from broker.core.events import events as ev
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import AwaitsJobs
from broker.core.job.arrays import JobArray
from broker.core.job.jobs import Job, Predecessor, When
from broker.ledger.journal import Writing
from broker.reconciler.controllers.after import standing


def with_predecessors(broker: Broker, job: Job, *, by: Actor) -> Job:
    """The job with the full ids of the jobs that it comes after. Of a job that is submitted again, a predecessor that
    has ended without success is the newest job of its name. Idempotent.

    Raises `UnknownName` for an unknown job, `InvalidInput` for one that has failed or is given twice, `NotAllowed` for
    results of another team's job.
    """
    before = tuple(_resolved(broker, job, one, by) for one in job.after)
    ids = [one.job for one in before]
    for one in before:
        if ids.count(one.job) > 1:
            raise InvalidInput(f"{one.job} is given twice", where="after")
    return job.model_copy(update={"after": before}) if before else job


def _resolved(broker: Broker, job: Job, wanted: Predecessor, by: Actor) -> Predecessor:
    view = jobs.find(broker, wanted.job)
    if wanted.folder and view.state.final and view.state is not JobState.SUCCEEDED:
        view = jobs.find(broker, view.job.name)
    if wanted.inputs and view.job.team != job.team and not by.may_act_for(view.user, view.job.team):
        raise NotAllowed(f"the results of {view.id} are another team's", hint=f"ask {view.user}")
    if standing([Predecessor(job=view.id, when=wanted.when)], {view.id: view.state}).failed is not None:
        raise InvalidInput(
            f"{view.id} {view.state.value.replace('_', ' ')}: a job that comes after it would never begin",
            where="after",
            hint=f"`gpubroker jobs resume {view.id} --same-files` first, then submit or resume this job again, with"
            f" `after: {view.job.name}`; or write `when: ended`",
        )
    tasks = _tasks(broker, view, view.job.array) if view.job.array and wanted.inputs else {}
    return wanted.model_copy(update={"job": view.id, "folder": wanted.folder or wanted.job, "tasks": tasks})


def _tasks(broker: Broker, view: JobView, array: JobArray) -> dict[str, tuple[int, ...]]:
    """The numbers of the array's tasks, by the array that ran each last."""
    with broker.store.reading() as look:
        earlier = {one.id: one.job.array for one in look.views(array.again)}
    found: dict[str, tuple[int, ...]] = {}
    seen: set[int] = set()
    for id, one in [(view.id, array), *((id, earlier.get(id)) for id in array.again)]:
        if one is not None:
            found[id] = tuple(number for number in map(one.number, range(one.count)) if number not in seen)
            seen.update(found[id])
    return found


def in_order(given: Sequence[Job]) -> list[Job]:
    """The jobs of one submission, ordered so that each follows those that it comes after. Raises `InvalidInput` for two
    jobs with the same name if another job refers to that name, and for a cycle, with the names of its jobs."""
    named: dict[str, Job] = {}
    for job in given:
        if job.name in named:
            raise InvalidInput(f"two jobs are called {job.name}", hint="give each job of a submission its own name")
        named[job.name] = job
    graph = {job.name: {one.job for one in job.after if one.job in named} for job in given}
    try:
        return [named[name] for name in TopologicalSorter(graph).static_order()]
    except CycleError as error:
        names = " → ".join(reversed(error.args[1]))
        raise InvalidInput(
            f"these jobs come after each other, so none would begin: {names}",
            where="after",
            hint="an earlier job of the same name is named by its id",
        ) from None


def referring(job: Job, submitted: Mapping[str, str]) -> Job:
    """The job with the ids of jobs of its own submission instead of their names. ``submitted``: ids by name."""
    after = tuple(
        one.model_copy(update={"job": submitted.get(one.job, one.job), "folder": one.folder or one.job})
        for one in job.after
    )
    return job.model_copy(update={"after": after}) if after else job


def begin_later(tx: Writing, job_id: str, submitted: ev.Submitted, broker: Broker) -> JobView:
    """Record a job that comes after others. No money is held; the reconciler starts the job later."""
    reason = AwaitsJobs(jobs=tuple(one.job for one in submitted.job.after))
    return tx.append(job_id, [(None, submitted), (None, ev.NothingFeasible(reason=reason))], broker.clock.now())


def words(job: Job) -> str:
    """The note of a plan on the jobs that it comes after."""
    parts = [f"{one.folder or one.job} has {'ended' if one.when is When.ENDED else 'succeeded'}" for one in job.after]
    return f"it begins after {' and '.join(parts)}; its cost is judged and its money held then, not before"
