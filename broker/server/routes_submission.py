"""The routes of submission: a plan, which changes nothing, and a job, whose files are already uploaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from broker.app.access.idempotency import ChangeAnswer, run_once
from broker.app.alerts import approvers
from broker.app.jobs import details
from broker.app.jobs.network_jobs import attach_sealed_secrets, attach_snapshot, mark_from_network, parse_received_job
from broker.app.jobs.plans import plan_received
from broker.app.jobs.resume import network_resumed_job, retried_job
from broker.app.jobs.sealed_secrets import SealedBox, service_key
from broker.app.jobs.snapshots import pool_name
from broker.app.jobs.submit import submit
from broker.app.results.jobs import JobFileText, SubmissionTerms
from broker.app.results.plans import PlanResult
from broker.core.access.permissions import Permission
from broker.core.documents import MAX_BYTES
from broker.core.events.views import JobView
from broker.core.job.file import print_job
from broker.core.job.jobs import Job
from broker.core.job.snapshots import FileSnapshot
from broker.server.callers import By, Caller
from broker.server.changes import Key, changeable, job_in_words, request_of

_MAX_BOX = 1_000_000


class SealedBody(BaseModel):
    """Secrets encrypted for the server's key: HPKE as in `GET /submission`, base64."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str = Field(max_length=64)
    id: str = Field(max_length=64)
    box: str = Field(max_length=_MAX_BOX)


class PlanBody(BaseModel):
    """``job_file``: the text of a job file (YAML)."""

    model_config = ConfigDict(extra="forbid")

    job_file: str = Field(max_length=MAX_BYTES)


class SubmitBody(PlanBody):
    """``snapshot``: the uploaded files; ``sealed``: the secrets; null if the job has none."""

    snapshot: FileSnapshot | None = None
    sealed: SealedBody | None = None


class ResumeBody(SubmitBody):
    """``step``: from the newest checkpoint at that step; null: from the newest of all."""

    step: int | None = Field(default=None, ge=0)


class RetryBody(BaseModel):
    """``from_start``: from the beginning, not from a checkpoint; ``sealed``: the secrets, given again."""

    model_config = ConfigDict(extra="forbid")

    from_start: bool = False
    sealed: SealedBody | None = None


def submission_terms(by: By) -> SubmissionTerms:
    """The parameters of a submission: the folder for uploads, the largest size, and the key for secrets."""
    broker = by.broker
    return SubmissionTerms(
        pool=pool_name(broker, by.actor), max_snapshot=broker.settings.max_snapshot, secrets_key=service_key(broker)
    )


def plan_job(
    by: By, body: PlanBody, limit: Annotated[int, Query(ge=1, le=100)] = 10, by_carbon: bool = False
) -> PlanResult:
    """Where the job would run, at what cost, and what the policies say. ``by_carbon``: ranked by expected CO2, which no
    submission is. Changes nothing."""
    job = check_submission(by, parse_received_job(by.broker, body.job_file))
    return plan_received(by.broker, job, by=by.actor, by_carbon=by_carbon, limit=limit)


def submit_job(by: By, key: Key, body: SubmitBody) -> ChangeAnswer:
    """Submit a job: hold its money, and launch or queue it. Status 202: it needs an approval first."""
    job = check_submission(by, parse_received_job(by.broker, body.job_file))

    def make_job() -> JobView:
        return _submit(by, attach_snapshot(by.broker, job, body.snapshot, by=by.actor), body.sealed)

    return _once(by, key, "jobs.submit", job.name, body, make_job)


def retry_job(by: By, id: str, key: Key, body: RetryBody) -> ChangeAnswer:
    """Run an ended job again with the files that it was submitted with, as a new job, from its newest checkpoint if it
    has one. Status 202: it needs an approval first."""
    view = changeable(by, id)
    by.require(Permission.SUBMIT, view.job.team)

    def make_job() -> JobView:
        job = retried_job(by.broker, view, by=by.actor, from_start=body.from_start)
        return _submit(by, mark_from_network(by.broker, job), body.sealed)

    return _once(by, key, "jobs.retry", view.id, body, make_job)


def resume_job(by: By, id: str, key: Key, body: ResumeBody) -> ChangeAnswer:
    """Continue an ended job from a checkpoint with the files that are sent now, as a new job for what is left of its
    work. Status 202: it needs an approval first."""
    view = changeable(by, id)
    by.job(id, Permission.SEE_OUTPUT)
    job = check_submission(by, parse_received_job(by.broker, body.job_file))

    def make_job() -> JobView:
        new_job = network_resumed_job(by.broker, view, job, body.step, by=by.actor)
        return _submit(by, attach_snapshot(by.broker, new_job, body.snapshot, by=by.actor), body.sealed)

    return _once(by, key, "jobs.resume", view.id, body, make_job)


def job_file(by: By, id: str) -> JobFileText:
    """The job as a job file, as it was submitted; it names files of the machine that submitted it."""
    return JobFileText(id=by.job(id, Permission.SEE_OUTPUT).id, job_file=print_job(by.job(id).job))


def check_submission(by: Caller, job: Job) -> Job:
    """The job, if the caller may submit it. Other jobs that it names are given by their ids. Raises `RoleMissing`, and
    `UnknownName` for one that the caller may not see."""
    by.require(Permission.SUBMIT, job.team)
    if job.resume_from is not None:
        by.job(job.resume_from.job, Permission.SEE_OUTPUT)
    for predecessor in job.after:
        by.job(predecessor.job)
    return job


def _submit(by: Caller, job: Job, sealed: SealedBody | None) -> JobView:
    box = None if sealed is None else SealedBox(**sealed.model_dump())
    view = submit(by.broker, attach_sealed_secrets(by.broker, job, box, by=by.actor), by=by.actor)
    approvers.notify_approvers(by.broker, view)
    return view


def _once(
    by: Caller, key: str, action: str, subject: str, body: BaseModel, change: Callable[[], JobView]
) -> ChangeAnswer:
    def to_answer(view: JobView) -> ChangeAnswer:
        status = 202 if view.asked is not None else 201
        return ChangeAnswer.of(details.details(by.broker, view), job_in_words(view), status)

    request = request_of(by, key, (action, subject), f"{action} {subject} {body.model_dump_json()}")
    return run_once(by.broker, request, change, to_answer)
