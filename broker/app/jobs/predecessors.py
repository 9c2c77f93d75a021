"""Jobs that wait for others: which jobs these are, and in which order a graph of jobs is submitted."""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from broker.app.jobs import jobs
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import BrokerError, InvalidInput, NotAllowed, UnknownName
from broker.core.events import events as ev
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import AwaitsJobs
from broker.core.job.arrays import JobArray, task_id
from broker.core.job.jobs import Job, Predecessor, When
from broker.reconciler.controllers.predecessors import predecessor_states
from broker.store.jobs.journal import StoreWriter


def resolve_predecessors(broker: Broker, job: Job, *, by: Actor) -> Job:
    """The job with the full ids of the jobs that it comes after. Of a job that is submitted again, a predecessor that
    has ended without success is the newest job of its name and team. Idempotent.

    Raises `UnknownName` for an unknown job, `InvalidInput` for one that has failed or is given twice, `NotAllowed` for
    results of another team's job.
    """
    predecessors = tuple(_resolve_predecessor(broker, job, predecessor, by) for predecessor in job.after)
    ids = [predecessor.job for predecessor in predecessors]
    for predecessor in predecessors:
        if ids.count(predecessor.job) > 1:
            raise InvalidInput(f"{predecessor.job} is given twice", where="after")
    return job.model_copy(update={"after": predecessors}) if predecessors else job


def find_predecessor(
    broker: Broker, reference: str, teams: Collection[str | None] | None = None
) -> tuple[JobView, str]:
    """The job of ``teams`` (None: all) that ``reference`` means, and its id. The view of a task that has not begun is
    that of its array. Raises as `jobs.find`."""
    with contextlib.suppress(UnknownName):
        view = jobs.find(broker, reference, teams)
        if not view.state.final or view.id == reference:
            return view, view.id
    array_name = reference.rpartition("-")[0]
    with contextlib.suppress(BrokerError):
        view = jobs.find(broker, array_name, teams)
        if (array := view.job.array) is not None and array.has_task(reference, array_name):
            task = task_id(view.id, int(reference.rpartition("-")[2]))
            with broker.store.reading() as reader:
                return reader.job(task) or view, task
    view = jobs.find(broker, reference, teams)
    return view, view.id


def _resolve_predecessor(broker: Broker, job: Job, predecessor: Predecessor, by: Actor) -> Predecessor:
    view, id = find_predecessor(broker, predecessor.job)
    if predecessor.folder and view.state.final and view.state is not JobState.SUCCEEDED:
        view, id = find_predecessor(broker, view.job.name, {view.job.team})
    if predecessor.inputs and view.job.team != job.team and not by.may_act_for(view.user, view.job.team):
        raise NotAllowed(f"the results of {view.id} are another team's", hint=f"ask {view.user}")
    if predecessor_states([Predecessor(job=view.id, when=predecessor.when)], {view.id: view.state}).failed is not None:
        raise InvalidInput(
            f"{view.id} {view.state.value.replace('_', ' ')}: a job that comes after it would never begin",
            where="after",
            hint=f"`gpubroker jobs resume {view.id} --same-files` first, then submit or resume this job again, with"
            f" `after: {view.job.name}`; or write `when: ended`",
        )
    is_array = view.job.array is not None and id == view.id
    tasks = _tasks(broker, view, view.job.array) if is_array and view.job.array and predecessor.inputs else {}
    return predecessor.model_copy(update={"job": id, "folder": predecessor.folder or predecessor.job, "tasks": tasks})


def _tasks(broker: Broker, view: JobView, array: JobArray) -> dict[str, tuple[int, ...]]:
    """The numbers of the array's tasks, by the array that ran each last."""
    with broker.store.reading() as reader:
        earlier_arrays = {run.id: run.job.array for run in reader.views(array.again)}
    tasks: dict[str, tuple[int, ...]] = {}
    seen: set[int] = set()
    for id, run in [(view.id, array), *((id, earlier_arrays.get(id)) for id in array.again)]:
        if run is not None:
            tasks[id] = tuple(number for number in map(run.number, range(run.count)) if number not in seen)
            seen.update(tasks[id])
    return tasks


def dependency_order(submission: Sequence[Job]) -> list[Job]:
    """The jobs of one submission, ordered so that each follows those that it comes after. Raises `InvalidInput` for two
    jobs with the same name if another job refers to that name, and for a cycle, with the names of its jobs."""
    jobs_by_name: dict[str, Job] = {}
    for job in submission:
        if job.name in jobs_by_name:
            raise InvalidInput(f"two jobs are called {job.name}", hint="give each job of a submission its own name")
        jobs_by_name[job.name] = job
    graph = {
        job.name: {
            other.name
            for predecessor in job.after
            for other in submission
            if other.name == predecessor.job or (other.array and other.array.has_task(predecessor.job, other.name))
        }
        for job in submission
    }
    try:
        return [jobs_by_name[name] for name in TopologicalSorter(graph).static_order()]
    except CycleError as error:
        names = " → ".join(reversed(error.args[1]))
        raise InvalidInput(
            f"these jobs come after each other, so none would begin: {names}",
            where="after",
            hint="an earlier job of the same name is named by its id",
        ) from None


def replace_names_with_ids(job: Job, submitted: Mapping[str, JobView]) -> Job:
    """The job with the ids of ``submitted`` jobs of its own submission, by name, and of their tasks instead of their
    names."""

    def id_of(name: str) -> str:
        array_name, _, number = name.rpartition("-")
        view, array_view = submitted.get(name), submitted.get(array_name)
        if view is None and array_view and array_view.job.array and array_view.job.array.has_task(name, array_name):
            return task_id(array_view.id, int(number))
        return view.id if view else name

    predecessors = tuple(
        predecessor.model_copy(update={"job": id_of(predecessor.job), "folder": predecessor.folder or predecessor.job})
        for predecessor in job.after
    )
    return job.model_copy(update={"after": predecessors}) if predecessors else job


def record_dependent_job(tx: StoreWriter, job_id: str, submission: ev.Submitted, broker: Broker) -> JobView:
    """Record a job that comes after others. No money is held; the reconciler starts the job later."""
    reason = AwaitsJobs(jobs=tuple(predecessor.job for predecessor in submission.job.after))
    return tx.append(job_id, [(None, submission), (None, ev.NothingFeasible(reason=reason))], broker.clock.now())


def predecessors_note(job: Job) -> str:
    """The note of a plan on the jobs that it comes after."""
    conditions = [
        f"{predecessor.folder or predecessor.job} has {'ended' if predecessor.when is When.ENDED else 'succeeded'}"
        for predecessor in job.after
    ]
    return f"it begins after {' and '.join(conditions)}; its cost is judged and its money held then, not before"
