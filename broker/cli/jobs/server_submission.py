"""Submitting a job through a team server, and following it there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.app.jobs.job_input import pin_commit
from broker.app.use_cases.submission import submit_job
from broker.cli.jobs import snapshot_view
from broker.cli.jobs.submit import SubmitManner, check_can_confirm, confirm, follow_to_end, refuse, show_submitted
from broker.cli.terminal import Terminal, defer_ctrl_c
from broker.core.job.jobs import Job
from broker.server.client import sending

if TYPE_CHECKING:
    from broker.app.jobs.documents import JobDetails


def submit_to_server(terminal: Terminal, job: Job, manner: SubmitManner) -> None:
    """Submit a job: show its plan, ask for confirmation, upload its files, and follow it. Raises `typer.Exit` with the
    exit code."""
    api = terminal.api
    job = prepare_job(terminal, sending.resolve_job_ids(api, job), manner)
    plan = None
    if not (manner.yes and terminal.as_json):  # the plan would not be shown
        plan = sending.plan_on_server(api, job, limit=3)
        if plan.refusal is not None and not manner.yes:  # with --yes, the server decides, and records its refusal
            refuse(terminal, plan)
    confirm(terminal, plan, manner)
    submit_request(terminal, manner, submit_job, **upload_files(terminal, job))


def prepare_job(terminal: Terminal, job: Job, manner: SubmitManner) -> Job:
    """The job with the commit of its repository; prints which files it takes. Raises `InvalidInput`."""
    check_can_confirm(terminal, manner)
    if (survey := sending.survey_of(terminal.api, job)) is not None:
        terminal.say(*snapshot_view.survey_lines(survey))
    job, commit_note = pin_commit(job)
    terminal.say(*filter(None, [commit_note]))
    return job


def upload_files(terminal: Terminal, job: Job) -> dict[str, Any]:
    """The request that submits the job, once its files are uploaded."""
    with snapshot_view.bytes_bar(terminal, "uploading the job's files") as progress:
        return sending.submission_body(terminal.api, job, progress)


def submit_request(
    terminal: Terminal, manner: SubmitManner, use_case: Callable[..., JobDetails], *ids: str, **body: Any
) -> None:
    """Request a new job and, unless it is detached, follow it to its end. Raises `typer.Exit` with the exit code."""
    with defer_ctrl_c() as was_interrupted:  # money is held by then
        details = terminal.api.run(use_case, *ids, **body)
        show_submitted(terminal, details)
    follow_to_end(terminal, details, manner, was_interrupted=was_interrupted())
