"""Submission through a team server: the job's files, secrets and job file are sent, and the server decides."""

import contextlib
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import yaml

from broker.app.jobs.documents import SubmissionTerms
from broker.app.jobs.jobs import refuse_several, unknown_job
from broker.app.jobs.plan_documents import PlanResult
from broker.app.jobs.sealed_secrets import encrypt_for_service, missing_secrets, missing_secrets_notes
from broker.app.jobs.snapshots import Survey, has_local_files, resolve_paths, store_snapshot, survey_files
from broker.app.use_cases.jobs import job_file
from broker.app.use_cases.submission import plan_job, submission_terms
from broker.core.errors import InvalidInput, Malformed, StoreProblem, UnknownName
from broker.core.events.outcomes import JobState
from broker.core.job.file import parse_job, print_job
from broker.core.job.jobs import Job
from broker.engines.snapshots.upload import Progress, no_progress
from broker.server.client.team_api import SAME_VERSION, Document, TeamApi

_TREES, _FILES = "trees", "files"
_MAX_MATCHES = 50  # jobs of one name that are looked at, open ones first
_MAX_KNOWN = 50  # jobs among which one of a similar name is looked for


class _ServerPool:
    """The person's pool of uploaded contents, accessed through the server's API."""

    def __init__(self, api: TeamApi) -> None:
        self._api = api

    def exists(self, path: str) -> bool:
        return self._api.has_content(*_address(path))

    def write(self, path: str, data: bytes) -> None:
        self._api.put_content(*_address(path), data)

    def upload(self, path: str, pieces: Iterable[bytes], size: int = 0, room: int = 0) -> None:
        self._api.put_content(*_address(path), pieces)


def _address(path: str) -> tuple[str, str]:
    """The kind and the SHA-256 of a path in a pool: ``files/ab/abcd…``, ``trees/abcd….json``."""
    kind, *_, name = path.split("/")
    return (_TREES, name.removesuffix(".json")) if kind == _TREES else (_FILES, name)


def plan_on_server(api: TeamApi, job: Job, *, by_carbon: bool = False, limit: int) -> PlanResult:
    """The server's plan for a job, with at most ``limit`` placements, but not more than 100. ``by_carbon``: ranked by
    expected CO2. Changes nothing and uploads nothing."""
    result = api.run(plan_job, print_job(resolve_job_ids(api, job)), min(limit, 100), by_carbon)
    return result.model_copy(update={"notes": [*result.notes, *missing_secrets_notes(job)]})


def resolve_job_ids(api: TeamApi, job: Job) -> Job:
    """The job with the full ids of the jobs that it comes after or resumes. Those whose results it takes keep their
    names, because the folders of the results are named as the job file names the jobs, and so do those that the server
    alone may know, such as tasks that have not begun. Idempotent. Raises as `job_id`."""
    after = []
    for predecessor in job.after:
        with contextlib.suppress(UnknownName):
            if not predecessor.inputs:
                predecessor = predecessor.model_copy(update={"job": job_id(api, predecessor.job)})
        after.append(predecessor)
    resume_point = job.resume_from
    if resume_point is not None:
        resume_point = resume_point.model_copy(update={"job": job_id(api, resume_point.job)})
    return job.model_copy(update={"after": tuple(after), "resume_from": resume_point})


def survey_of(api: TeamApi, job: Job) -> Survey | None:
    """The files that a submission would upload; None if the job has none. Raises `InvalidInput` for files that cannot
    be read, or that are larger than the server takes."""
    return survey_files(job, api.run(submission_terms).max_snapshot) if has_local_files(job) else None


def original_job(api: TeamApi, id: str, workdir: Path | None, envs: Mapping[str, str]) -> Job:
    """The job as it was submitted, with the files of this machine: those of ``workdir``, or of the folder that it was
    submitted from. Raises `InvalidInput` if that folder is not on this machine."""
    text, now = api.run(job_file, id).job_file, datetime.now(UTC)
    fields = yaml.safe_load(text)
    fields.pop("deadline", None)  # the old job's deadline, which may have passed
    fields.pop("resume_from", None)
    if workdir is not None:
        fields["workdir"] = str(workdir.expanduser().absolute())
    fields["envs"] = {**(fields.get("envs") or {}), **envs}
    job = parse_job(yaml.safe_dump(fields, sort_keys=False), file=f"job {id}", now=now)
    return resolve_paths(job, Path.cwd(), id)


def submission_body(api: TeamApi, job: Job, progress: Progress = no_progress) -> Document:
    """The request that submits the job, whose paths are absolute: its files are uploaded, unless the server has them,
    and its secrets encrypted.

    Raises `InvalidInput` for secrets that are not in the environment and for files that cannot be read, `StoreProblem`
    if the server takes no secrets, and what `TeamApi` raises.
    """
    if missing := missing_secrets(job):
        raise InvalidInput(
            f"secrets not in the environment: {', '.join(missing)}", hint="export them, then submit again"
        )
    terms = api.run(submission_terms)
    body: Document = {"job_file": print_job(job)}
    if has_local_files(job):
        stored_job = store_snapshot(job, terms.pool, lambda: _ServerPool(api), progress)
        assert stored_job.snapshot is not None
        body["snapshot"] = stored_job.snapshot.model_dump(mode="json")
    values = {name: os.environ[name] for name in job.secrets if name in os.environ}
    if values:
        box = encrypt_for_service(_secrets_key(terms), values)
        body["sealed"] = {"key": box.key, "id": box.id, "box": box.box}
    return body


def _secrets_key(terms: SubmissionTerms) -> str:
    if not terms.secrets_key:
        raise StoreProblem("this server takes no secrets: its service has not published a key", hint="ask who runs it")
    return terms.secrets_key


def job_id(api: TeamApi, reference: str) -> str:
    """The id of the job that `broker.app.jobs.jobs.find` finds, among those that the person may see. Raises as it
    does."""
    try:
        rows = api.rows("/jobs", "jobs", limit=_MAX_MATCHES, reference=reference)
        matches = [(str(row["id"]), row["name"], JobState(row["state"]).final) for row in rows]
        known = {str(row["id"]): str(row["name"]) for row in rows or api.rows("/jobs", "jobs", limit=_MAX_KNOWN)}
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed("the server's list of jobs cannot be read", where=api.url, hint=SAME_VERSION) from error
    if reference not in (id for id, _, _ in matches):
        refuse_several(reference, [id for id, name, ended in matches if name == reference and not ended])
    exact_ids = [id for id, name, _ in matches if reference in (id, name)]
    if exact_ids or len(matches) == 1:
        return exact_ids[0] if exact_ids else matches[0][0]
    raise unknown_job(reference, known)
