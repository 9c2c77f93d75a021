"""Submission over the network: a plan, which changes nothing, and a job, whose files are already uploaded."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from broker.app.access.callers import Caller
from broker.app.alerts import approvers
from broker.app.jobs import details
from broker.app.jobs.documents import JobDetails, SubmissionTerms
from broker.app.jobs.network_jobs import attach_sealed_secrets, attach_snapshot, mark_from_network
from broker.app.jobs.plan_documents import PlanResult, plan_result
from broker.app.jobs.preview import preview
from broker.app.jobs.resume import network_resumed_job, retried_job
from broker.app.jobs.sealed_secrets import SealedBox, service_key
from broker.app.jobs.snapshots import pool_name
from broker.app.jobs.submit import submit
from broker.app.use_cases.table import IN_QUERY
from broker.app.use_cases.visible import changeable, submittable_job
from broker.core.access.people import Permission
from broker.core.documents import MAX_BYTES
from broker.core.job.jobs import Job
from broker.core.job.snapshots import FileSnapshot

_MAX_BOX = 1_000_000
JobText = Annotated[str, Field(max_length=MAX_BYTES, description="The text of a job file (YAML).")]


class SealedBody(BaseModel):
    """Secrets encrypted for the server's key: HPKE as in `GET /submission`, base64."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str = Field(max_length=64)
    id: str = Field(max_length=64)
    box: str = Field(max_length=_MAX_BOX)


Snapshot = Annotated[FileSnapshot | None, Field(description="The uploaded files; null if the job has none.")]
Sealed = Annotated[SealedBody | None, Field(description="The secrets; null if the job has none.")]


def submission_terms(by: Caller) -> SubmissionTerms:
    """The parameters of a submission: the folder for uploads, the largest size, and the key for secrets."""
    broker = by.broker
    return SubmissionTerms(
        pool=pool_name(broker, by.actor), max_snapshot=broker.settings.max_snapshot, secrets_key=service_key(broker)
    )


def plan_job(
    by: Caller,
    job_file: JobText,
    limit: Annotated[int, IN_QUERY, Field(ge=1, le=100)] = 10,
    by_carbon: Annotated[bool, IN_QUERY] = False,
) -> PlanResult:
    """Where the job would run, at what cost, and what the policies say. ``by_carbon``: ranked by expected CO2, which no
    submission is. Changes nothing."""
    job = submittable_job(by, job_file)
    job_preview = preview(by.broker, job, by=by.actor, by_carbon=by_carbon, sends_secrets=False)
    return plan_result(by.broker, job_preview, limit=limit)


def plan_text_alone(by: Caller, job_file: str) -> PlanResult:
    """As `plan_job`, of a job that is submitted as this text alone, with neither files nor secrets. Raises also
    `InvalidInput` for one that needs them."""
    job = attach_snapshot(by.broker, submittable_job(by, job_file), None, by=by.actor)
    attach_sealed_secrets(by.broker, job, None, by=by.actor)
    return plan_job(by, job_file)


def submit_job(by: Caller, job_file: JobText, snapshot: Snapshot = None, sealed: Sealed = None) -> JobDetails:
    """Submit a job: hold its money, and launch or queue it. Status 202: it needs an approval first."""
    job = submittable_job(by, job_file)
    return _submit(by, attach_snapshot(by.broker, job, snapshot, by=by.actor), sealed)


def retry_job(
    by: Caller,
    id: str,
    from_start: Annotated[bool, Field(description="From the beginning, not from a checkpoint.")] = False,
    sealed: Sealed = None,
) -> JobDetails:
    """Run an ended job again with the files that it was submitted with, as a new job, from its newest checkpoint if it
    has one. Status 202: it needs an approval first."""
    view = changeable(by, id)
    by.require(Permission.SUBMIT, view.job.team)
    job = retried_job(by.broker, view, by=by.actor, from_start=from_start)
    return _submit(by, mark_from_network(by.broker, job), sealed)


def resume_job(
    by: Caller,
    id: str,
    job_file: JobText,
    snapshot: Snapshot = None,
    sealed: Sealed = None,
    step: Annotated[int | None, Field(ge=0, description="From the newest checkpoint at this step, or of all.")] = None,
) -> JobDetails:
    """Continue an ended job from a checkpoint with the files that are sent now, as a new job for what is left of its
    work. Status 202: it needs an approval first."""
    view = changeable(by, id)
    by.job(id, Permission.SEE_OUTPUT)
    job = network_resumed_job(by.broker, view, submittable_job(by, job_file), step, by=by.actor)
    return _submit(by, attach_snapshot(by.broker, job, snapshot, by=by.actor), sealed)


def _submit(by: Caller, job: Job, sealed: SealedBody | None) -> JobDetails:
    box = None if sealed is None else SealedBox(**sealed.model_dump())
    view = submit(by.broker, attach_sealed_secrets(by.broker, job, box, by=by.actor), by=by.actor)
    approvers.notify_approvers(by.broker, view)
    return details.details(by.broker, view)
