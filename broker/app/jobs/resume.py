"""Resuming an ended job: a new job that starts from one of its checkpoints. It is submitted like any other job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from broker.app.jobs import jobs
from broker.app.jobs.job_files import checkpoint, checkpoints
from broker.app.jobs.snapshots import resolve_paths
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import Conflict, InvalidInput, NotAllowed, UnknownName
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.job.arrays import JobArray
from broker.core.job.file.schema import unpin
from broker.core.job.jobs import Job, ResumePoint
from broker.reconciler.progress import remaining_work

# Fields of the old job only. A job resumed from a task keeps the task's variables but is not in the array, which counts
# only what it started itself.
_RESET_FIELDS: Mapping[str, object] = {"seal": None, "task": None}


@dataclass(frozen=True, slots=True)
class ResumeChanges:
    """How the new job differs. ``workdir``: replaces the job's own. ``envs``: added to the job's own. ``step``: resume
    from the newest checkpoint at that step; None: from the newest of all."""

    workdir: Path | None = None
    envs: Mapping[str, str] = field(default_factory=dict)
    step: int | None = None


def resumed_job(broker: Broker, view: JobView, changes: ResumeChanges, *, by: Actor) -> Job:
    """A job that resumes ``view`` from a checkpoint, with its files as they are now; from a Git repository, the present
    commit of its branch or tag (`with_commit`). Submits nothing.

    Raises `NotAllowed` for another person's job and for a job that has not ended, `InvalidInput` for a job without a
    checkpoint or with a missing folder, `UnknownName` for a step without one, `Unreachable`.
    """
    _check_ended(view, by)
    job = view.job
    folder = changes.workdir or (Path(job.workdir) if job.workdir else None)
    if folder is not None and not folder.is_dir():
        raise InvalidInput(
            f"the folder that {view.id} was submitted from does not exist: {folder}",
            hint="name another one with --workdir, or use the same files as before: --same-files",
        )
    envs = {**job.envs, **changes.envs}
    updates = {**_RESET_FIELDS, "snapshot": None, "workdir": str(folder) if folder else None, "envs": envs}
    updates["setup"] = unpin(job.setup)  # from a Git repository, too, the present files
    updated_job = resolve_paths(job.model_copy(update=updates), Path.cwd(), view.id)
    point = resume_point(broker, ResumePoint(job=view.id, step=changes.step))
    return _resume_at(updated_job, view, point)


def network_resumed_job(broker: Broker, view: JobView, job: Job, step: int | None, *, by: Actor) -> Job:
    """``job``, which came over the network, as one that resumes ``view`` at ``step`` (None: newest checkpoint).
    Submits nothing. Raises as `resumed_job`."""
    _check_ended(view, by)
    point = resume_point(broker, ResumePoint(job=view.id, step=step))
    return _resume_at(job.model_copy(update=_RESET_FIELDS), view, point)


def retried_job(broker: Broker, view: JobView, *, by: Actor, from_start: bool = False) -> Job:
    """The same job with the same files, from its newest checkpoint if there is one; for an array, the tasks
    that failed, were cancelled or never began, each from its own checkpoint. Submits nothing. Raises `NotAllowed` as
    `resumed_job`, `InvalidInput` for an array without such a task, `Unreachable`."""
    _check_ended(view, by)
    if view.job.array is not None:
        return _retried_array(broker, view, view.job.array, from_start=from_start)
    if from_start or not checkpoints(broker, view):
        return view.job.model_copy(update={**_RESET_FIELDS, "resume_from": None})
    return _resume_at(view.job.model_copy(update=_RESET_FIELDS), view, ResumePoint(job=view.id))


def _retried_array(broker: Broker, view: JobView, array: JobArray, *, from_start: bool) -> Job:
    """The array with the tasks that did not succeed, so that it covers all tasks once these have."""
    with broker.store.reading() as reader:
        ended = reader.tasks_of(view.id, [JobState.FAILED.value, JobState.CANCELLED.value])
        started_count = reader.task_counts(view.id).started
    missing = [array.number(turn) for turn in range(started_count, array.count)]
    if not ended and not missing:
        raise InvalidInput(
            f"no task of {view.id} has failed or was cancelled",
            hint=f"`gpubroker status {view.id}` counts its tasks; `gpubroker submit` runs all of them again",
        )
    if not started_count:  # the retry of an array that never began is the same array
        with_checkpoint = () if from_start else array.with_checkpoint
        return _array_of(view, array.model_copy(update={"with_checkpoint": with_checkpoint}))
    numbers = sorted([*(task.job.task.index for task in ended if task.job.task), *missing])
    resumable = sorted(task.job.task.index for task in ended if task.job.task and task.checkpoint and not from_start)
    updates = {"only": tuple(numbers), "again": (view.id, *array.again), "with_checkpoint": tuple(resumable)}
    return _array_of(view, array.model_copy(update=updates))


def _array_of(view: JobView, array: JobArray) -> Job:
    return view.job.model_copy(update={**_RESET_FIELDS, "array": array})


def complete_resume_point(broker: Broker, job: Job) -> Job:
    """The job with its ``resume_from`` completed. Raises as `resume_point`."""
    if job.resume_from is None:
        return job
    return job.model_copy(update={"resume_from": resume_point(broker, job.resume_from)})


def resume_point(broker: Broker, request: ResumePoint) -> ResumePoint:
    """``request`` with the full id of the job and, if it names a step, the id of the checkpoint.

    Raises `UnknownName` for an unknown job or step, `InvalidInput` for a job that has not ended (its checkpoints still
    change) or has no checkpoint, `Unreachable`.
    """
    view = jobs.find(broker, request.job)
    if not view.state.final:
        raise InvalidInput(
            f"{view.id} has not ended; its checkpoints still change",
            where="resume_from",
            hint=f"wait for its end, or `gpubroker cancel {view.id}`, which saves a last checkpoint",
        )
    if request.checkpoint is not None:
        return request
    manifests = checkpoints(broker, view)
    if not manifests:
        raise InvalidInput(
            f"{view.id} has no checkpoint to resume from",
            where="resume_from",
            hint=f"start it anew: `gpubroker jobs resume {view.id} --same-files`, or `submit` the present code",
        )
    if request.step is None:
        return ResumePoint(job=view.id)
    try:
        manifest = checkpoint(broker, view, str(request.step))
    except UnknownName as error:
        raise UnknownName("step", str(request.step), [str(candidate.step) for candidate in manifests]) from error
    return ResumePoint(job=view.id, step=request.step, checkpoint=manifest.id)


def _resume_at(job: Job, view: JobView, point: ResumePoint) -> Job:
    """The job with the resume point, and its work reduced to what is left."""
    remaining = remaining_work(view)
    if job.work is None or remaining is None or not view.work:
        return job.model_copy(update={"resume_from": point})
    work = job.work.model_copy(update={"duration": job.work.duration * min(remaining / view.work, 1.0)})
    return job.model_copy(update={"resume_from": point, "work": work})


def _check_ended(view: JobView, by: Actor) -> None:
    if not by.may_act_for(view.user):
        raise NotAllowed(f"{view.id} is {view.user}'s job, and you are {by.identity}", hint=f"ask {view.user}")
    if view.cancel_requested and not view.state.final:
        raise Conflict(
            f"{view.id} has not ended: it is being stopped, after a last checkpoint",
            hint=f"run this again when `gpubroker status {view.id}` says that it is cancelled",
        )
    if not view.state.final:
        raise Conflict(
            f"{view.id} has not ended: it is {view.state.value.replace('_', ' ')}",
            hint=f"it resumes by itself after interruptions; to stop it: `gpubroker cancel {view.id}`",
        )
