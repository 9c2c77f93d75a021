"""Submission of a job: the form with its job file, the plan with its price, and the confirmation."""

import json
from typing import Annotated

from fastapi import Query
from fastapi.responses import RedirectResponse, Response

from broker.app.jobs.plan_documents import PlanResult
from broker.app.use_cases import jobs
from broker.app.use_cases.changes import change
from broker.app.use_cases.submission import plan_text_alone, submit_job
from broker.core.access.people import Permission
from broker.core.documents import print_document
from broker.core.errors import BrokerError, InvalidInput
from broker.server.api.problems import status_of
from broker.server.page.jobs import JOBS_PATH
from broker.server.page.render import render_page
from broker.server.page.visitors import By, Form, request_key

NEW_JOB = """\
name: my-job
{team}resources: {{accelerators: "L4:1"}}
run: echo hello
work: 30m
max_cost: $10
"""


def job_form(by: By, like: Annotated[str, Query(max_length=200)] = "") -> Response:
    """The form with a short job file, or with that of the job ``like``."""
    if like:
        return _form(by, jobs.job_file(by.caller, like).job_file)
    teams = by.caller.access.teams(Permission.SUBMIT)
    return _form(by, NEW_JOB.format(team=print_document({"team": min(teams)}) if teams else ""))


def plan_job(by: By, form: Form) -> Response:
    """Where the job of the form would run and at what price (USD), with the form that submits it. Changes nothing."""
    text = _job_file(form)
    try:
        return _form(by, text, plan_text_alone(by.caller, text))
    except BrokerError as problem:  # the form keeps the text
        return _form(by, text, problem=problem)


def submit(by: By, form: Form) -> Response:
    """Submit the job that was planned. Idempotent by the form's key."""
    text = _job_file(form)
    try:
        answer = change(by.caller, request_key(form), submit_job, job_file=text)
    except BrokerError as problem:
        return _form(by, text, problem=problem)
    return RedirectResponse(f"{JOBS_PATH}/{json.loads(answer.body)['id']}", 303)


def _form(by: By, text: str, plan: PlanResult | None = None, problem: BrokerError | None = None) -> Response:
    values = {"text": text, "lines": text.splitlines(), "plan": plan, "problem": problem}
    status = 200 if problem is None else status_of(problem).value
    return render_page("submit.html", by, values, title="New job", at=JOBS_PATH, status=status)


def _job_file(form: Form) -> str:
    text = form.get("job_file", "").replace("\r\n", "\n")  # as browsers send line breaks
    if not text.strip():
        raise InvalidInput("the job file is empty", where="job_file", hint="write at least `name` and `run`")
    return text
