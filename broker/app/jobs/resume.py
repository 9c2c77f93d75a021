"""Going on after an end: a new job that starts from a checkpoint of one that has ended, judged and held as any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from broker.app.jobs import jobs
from broker.app.jobs.kept_files import checkpoint, checkpoints
from broker.app.jobs.snapshots import resolved
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput, NotAllowed, UnknownName
from broker.core.events.views import JobView
from broker.core.job.jobs import Job, ResumePoint
from broker.reconciler.progress import remaining_work


@dataclass(frozen=True, slots=True)
class ResumeChanges:
    """What is different the next time. ``workdir``: another folder than the job's own. ``envs``: added to its own.
    ``step``: from the newest checkpoint at that step; None: from the newest."""

    workdir: Path | None = None
    envs: Mapping[str, str] = field(default_factory=dict)
    step: int | None = None


def resumed(broker: Broker, view: JobView, changes: ResumeChanges, *, by: Actor) -> Job:
    """The job to submit, so that it goes on from a checkpoint with its files as they are now. Submits nothing.

    Raises `NotAllowed` for somebody else's job and for one that has not ended, `InvalidInput` for one without a
    checkpoint or whose folder is not there, `Unreachable`.
    """
    _has_ended(view, by)
    job = view.job
    folder = changes.workdir or (Path(job.workdir) if job.workdir else None)
    if folder is not None and not folder.is_dir():
        raise InvalidInput(
            f"the folder that {view.id} was submitted from is not there: {folder}",
            hint="give another one with --workdir, or use the same files as before: `gpubroker jobs retry`",
        )
    envs = {**job.envs, **changes.envs}
    anew = {"seal": None, "snapshot": None, "workdir": str(folder) if folder else None, "envs": envs}
    changed = resolved(job.model_copy(update=anew), Path.cwd(), view.id)
    point = resume_point(broker, ResumePoint(job=view.id, step=changes.step))
    return _from_there(changed, view, point)


def retried(broker: Broker, view: JobView, *, by: Actor, from_start: bool = False) -> Job:
    """The same job with the same files once more, from its newest checkpoint if there is one. Raises `NotAllowed` as
    `resumed` does, `Unreachable`."""
    _has_ended(view, by)
    if from_start or not checkpoints(broker, view):
        return view.job.model_copy(update={"resume_from": None, "seal": None})
    return _from_there(view.job.model_copy(update={"seal": None}), view, ResumePoint(job=view.id))


def with_resume_point(broker: Broker, job: Job) -> Job:
    """The job with the other job that its file names found. Raises as `resume_point` does."""
    if job.resume_from is None:
        return job
    return job.model_copy(update={"resume_from": resume_point(broker, job.resume_from)})


def resume_point(broker: Broker, wanted: ResumePoint) -> ResumePoint:
    """The same with the job's id, and the checkpoint's if a step is asked for.

    Raises `UnknownName` for a job or a step that is not there, `InvalidInput` for a job that has not ended (its
    checkpoints still change) or has no checkpoint.
    """
    view = jobs.find(broker, wanted.job)
    if not view.state.final:
        raise InvalidInput(
            f"{view.id} has not ended; its checkpoints still change",
            where="resume_from",
            hint=f"wait for its end, or `gpubroker jobs cancel {view.id}`, which saves a last checkpoint",
        )
    if wanted.checkpoint is not None:
        return wanted
    found = checkpoints(broker, view)
    if not found:
        raise InvalidInput(
            f"{view.id} has no checkpoint to go on from",
            where="resume_from",
            hint=f"start it from the beginning: `jobs retry {view.id}`, or `submit` it with the code as it is now",
        )
    if wanted.step is None:
        return ResumePoint(job=view.id)
    try:
        chosen = checkpoint(broker, view, str(wanted.step))
    except UnknownName as error:
        raise UnknownName("step", str(wanted.step), [str(one.step) for one in found]) from error
    return ResumePoint(job=view.id, step=wanted.step, checkpoint=chosen.id)


def _from_there(job: Job, view: JobView, point: ResumePoint) -> Job:
    """The job with what is left of its work."""
    left = remaining_work(view)
    if job.work is None or left is None or not view.work:
        return job.model_copy(update={"resume_from": point})
    work = job.work.model_copy(update={"duration": job.work.duration * min(left / view.work, 1.0)})
    return job.model_copy(update={"resume_from": point, "work": work})


def _has_ended(view: JobView, by: Actor) -> None:
    if not by.may_act_for(view.user):
        raise NotAllowed(f"{view.id} is {view.user}'s job, and you are {by.identity}", hint=f"ask {view.user}")
    if not view.state.final:
        raise NotAllowed(
            f"{view.id} has not ended: it is {view.state.value.replace('_', ' ')}",
            hint=f"it resumes by itself after interruptions; to stop it: `gpubroker jobs cancel {view.id}`",
        )
