"""Submitting a job through a team server, and following it there."""

from __future__ import annotations

from typing import Any

from broker.app.jobs.job_input import with_commit
from broker.app.results.jobs import JobDetails
from broker.cli.jobs import snapshot_view
from broker.cli.jobs.submit import Manner, can_confirm, conclude, confirm, refuse, tell_submitted
from broker.cli.terminal import Terminal, ctrl_c_waits
from broker.core.job.jobs import Job
from broker.remote import sending


def submit_there(terminal: Terminal, job: Job, how: Manner) -> None:
    """Submit a job: show its plan, ask for confirmation, upload its files, and follow it. Raises `typer.Exit` with the
    exit code."""
    api = terminal.api
    job = prepared(terminal, sending.with_ids(api, job), how)
    plan = None
    if not (how.yes and terminal.as_json):  # the plan would not be shown
        plan = sending.planned(api, job, limit=3)
        if plan.refusal is not None and not how.yes:  # with --yes, the server decides, and records its refusal
            refuse(terminal, plan)
    confirm(terminal, plan, how)
    send(terminal, "/jobs", uploaded(terminal, job), how)


def prepared(terminal: Terminal, job: Job, how: Manner) -> Job:
    """The job with the commit of its repository; prints which files it takes. Raises `InvalidInput`."""
    can_confirm(terminal, how)
    if (files := sending.survey_of(terminal.api, job)) is not None:
        terminal.say(*snapshot_view.about(files))
    job, commit = with_commit(job)
    terminal.say(*filter(None, [commit]))
    return job


def uploaded(terminal: Terminal, job: Job) -> dict[str, Any]:
    """The request that submits the job, once its files are uploaded."""
    with snapshot_view.bytes_bar(terminal, "uploading the job's files") as progress:
        return sending.body_of(terminal.api, job, progress)


def send(terminal: Terminal, path: str, body: dict[str, Any], how: Manner) -> None:
    """Request a new job and, unless it is detached, follow it to its end. Raises `typer.Exit` with the exit code."""
    with ctrl_c_waits() as pressed:  # money is held by then
        found = terminal.api.request(JobDetails, path, body)
        tell_submitted(terminal, found)
    conclude(terminal, found, how, left=pressed())
