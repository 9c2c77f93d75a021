"""The overview, jobs with their output, files and cancellation, and approval requests."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Query
from fastapi.responses import RedirectResponse, Response

from broker.app.billing.months import ReportPeriod
from broker.app.jobs import jobs
from broker.app.jobs.details import gpu_use
from broker.app.outside.overdue import overdue
from broker.app.results import story
from broker.core.access.permissions import Permission
from broker.core.errors import InvalidInput, NotAllowed, RetryLater, UnknownName
from broker.core.events.agent_events import MetricsReported
from broker.core.events.outcomes import JobState
from broker.page.charts import HIGH, WIDE, Scale, figure_curve, figure_curves
from broker.page.drawing import drawn, moment
from broker.page.visitors import By, Form, Renewal, request_key
from broker.server import changes, contents, routes_jobs, routes_money
from broker.server.changes import DecisionBody
from broker.server.routes_jobs import JobFilter

AT = "/jobs"
_ROWS = 50
_LINES = 40  # of output on the page of a job
_MOST_LINES = 2_000
_DECISIONS = 10  # the newest decisions that are looked at; those about placement are shown

Text = Annotated[str, Query(max_length=200)]
Cursor = Annotated[str | None, Query(max_length=500)]


def job_list(by: By, state: Text = "", team: Text = "", user: Text = "", cursor: Cursor = None) -> Response:
    """Jobs, newest first, in pages. An empty filter matches everything."""
    states = tuple(one for one in JobState if one == state)
    if state and not states:
        raise UnknownName("state", state, [one.value for one in JobState])
    asked = {"state": state, "team": team, "user": user}
    found = routes_jobs.job_page(
        by.caller, JobFilter(states, [team] if team else [], [user] if user else []), limit=_ROWS, cursor=cursor
    )
    following = {name: value for name, value in asked.items() if value} | {"cursor": found.next_cursor}
    values = {
        "page": found,
        "asked": asked,
        "states": list(JobState),
        "more": f"{AT}?{urlencode(following)}" if found.next_cursor else "",
        "first": cursor is None,
    }
    return drawn("jobs.html", by, values, title="Jobs", at=AT)


def job(by: By, id: str) -> Response:
    """One job: its placement, its cost (USD) with the reasons, its events, and the end of its output."""
    view = by.caller.job(id)
    found = routes_jobs.show_job(by.caller, id)
    output = by.caller.access.may(Permission.SEE_OUTPUT, view.job.team)
    happened = jobs.events(by.caller.broker, view)
    values = {
        "job": found,
        "places": {attempt.number: story.where(attempt.placement) for attempt in view.attempts},
        "causes": {attempt.number: story.cause_words(attempt.cause) for attempt in view.attempts},
        "why": routes_jobs.job_placements(by.caller, id, limit=_DECISIONS).decisions,
        "story": story.in_words(happened, view.submitted_at, moment),
        "reported": figure_curves(
            (event.at, event.body.metrics) for event in happened if isinstance(event.body, MetricsReported)
        ),
        "wide": WIDE,
        "high": HIGH,
        "accelerated": any(attempt.placement.offer.count and attempt.claimed_at for attempt in view.attempts),
        "shown_lines": _LINES,
        "lines": routes_jobs.job_logs(by.caller, id, tail=_LINES).lines if output else None,
        "may_cancel": not view.state.final and not view.cancel_requested and _may_change(by, id),
    }
    return drawn("job.html", by, values, title=f"{view.job.name} – job {view.id}", at=AT, live=True)


def job_output(
    by: By,
    id: str,
    attempt: Annotated[int | None, Query(ge=1)] = None,
    lines: Annotated[int, Query(ge=1, le=_MOST_LINES)] = _MOST_LINES,
) -> Response:
    """The last lines of a job's output, renewed until the job has ended."""
    found = routes_jobs.job_logs(by.caller, id, attempt=attempt, tail=lines)
    ended = by.caller.job(id).state.final
    asked = urlencode({"lines": lines} | ({"attempt": attempt} if attempt else {}))
    renewed_at = "" if ended or by.renewal is not Renewal.IN_PLACE else f"{AT}/{id}/output?{asked}"
    values = {"id": id, "lines": found.lines, "attempt": attempt, "most": lines, "renewed_at": renewed_at}
    page = drawn("output.html", by, values, title=f"Output of {id}", at=AT)
    if ended:  # replaces the element that polls, so that the polling ends
        page.headers["HX-Reswap"] = "outerHTML"
    return page


def job_files(by: By, id: str) -> Response:
    """The results and finished checkpoints of a job."""
    files, saved = contents.list_files(by.caller, id), contents.list_checkpoints(by.caller, id)
    return drawn("files.html", by, {"files": files, "saved": saved}, title=f"Files of {id}", at=AT)


def job_file(by: By, id: str, sha256: str) -> Response:
    """One result, as a download."""
    return contents.file_content(by.caller, id, sha256)


def job_usage(by: By, id: str) -> Response:
    """The utilization of a job's accelerators, by attempt."""
    view = by.caller.job(id, Permission.SEE_OUTPUT)
    try:
        found = gpu_use(by.caller.broker, view)
    except RetryLater as error:
        found, trouble = (), error.message
    else:
        trouble = ""
    curves = [
        (one.attempt, figure_curve("busy", [(each.at, each.percent) for each in one.samples], Scale(0, 100)))
        for one in found
    ]
    values = {"id": id, "curves": curves, "trouble": trouble, "wide": WIDE, "high": HIGH}
    return drawn("usage.html", by, values, title=f"Accelerators of {id}", at=AT)


def cancelling(by: By, id: str) -> Response:
    """The form that confirms a cancellation."""
    changes.changeable(by.caller, id)
    values = {"job": routes_jobs.show_job(by.caller, id)}
    return drawn("cancel.html", by, values, title=f"Cancel {id}?", at=AT)


def cancel(by: By, id: str, form: Form) -> Response:
    """Cancel the job, after a last checkpoint. Idempotent."""
    changes.cancel_job(by.caller, id, request_key(form))
    return RedirectResponse(f"{AT}/{id}", 303)


def _may_change(by: By, id: str) -> bool:
    try:
        changes.changeable(by.caller, id)
    except NotAllowed:
        return False
    return True


APPROVALS = "/approvals"
_LONGEST_REASON = 500


def approval_list(
    by: By, decided: Annotated[bool, Query()] = False, skip: Annotated[int, Query(ge=0, le=1_000_000)] = 0
) -> Response:
    """The page of requests (`_ROWS` of them, after the first ``skip``), standing grants and purchases; with buttons
    for approvers."""
    every = routes_jobs.list_approvals(by.caller, decided=decided)
    found = every.model_copy(update={"requests": every.requests[skip : skip + _ROWS]})
    more = skip + _ROWS if len(every.requests) > skip + _ROWS else None
    answerable = {one.job for one in found.requests if one.mine and by.caller.access.may(Permission.APPROVE, one.team)}
    values = {"found": found, "answerable": answerable, "decided": decided, "more": more, "of": len(every.requests)}
    return drawn("approvals.html", by, values, title="Approvals", at=APPROVALS)


def grant(by: By, id: str, form: Form) -> Response:
    """Approve the request for the rules whose approver this person is. Idempotent by the form's key. Raises
    `NotAllowed`, `UnknownName`."""
    changes.grant_approval(by.caller, id, request_key(form), DecisionBody(reason=_reason(form)))
    return RedirectResponse(APPROVALS, 303)


def refuse(by: By, id: str, form: Form) -> Response:
    """Refuse."""
    changes.refuse_approval(by.caller, id, request_key(form), DecisionBody(reason=_reason(form)))
    return RedirectResponse(APPROVALS, 303)


def _reason(form: dict[str, str]) -> str:
    reason = form.get("reason", "").strip()
    if len(reason) > _LONGEST_REASON:
        raise InvalidInput(f"expected at most {_LONGEST_REASON} characters", where="reason")
    return reason


RUNNING = (JobState.LAUNCHING, JobState.RUNNING)
WAITING = (JobState.QUEUED, JobState.PLANNED, JobState.INTERRUPTED, JobState.PAUSED_BUDGET)
_OVERVIEW_ROWS = 10
_GPU, _AGO = "H100", timedelta(days=7)


def overview(by: By) -> Response:
    """The overview, with the parts that the visitor may see."""
    caller, values = by.caller, dict[str, Any](gpu=_GPU)
    if by.may(Permission.SEE_BUDGETS):
        values["budgets"] = routes_money.list_budgets(caller).budgets
        values["spend"] = routes_money.spend_report(caller, "team", ReportPeriod(name="month"))
        values["simulated"] = routes_money.spend_report(caller, "team", ReportPeriod(name="month"), sandbox=True)
    if by.may(Permission.SEE_JOBS):
        late = [one for one in overdue(caller.broker) if caller.access.may(Permission.SEE_JOBS, one.team)]
        values["overdue"] = late
        values["running"] = routes_jobs.job_page(caller, JobFilter(RUNNING), limit=_OVERVIEW_ROWS)
        values["waiting"] = routes_jobs.job_page(caller, JobFilter(WAITING), limit=_OVERVIEW_ROWS)
        requests = routes_jobs.list_approvals(caller).requests
        values["requests"], values["more_requests"] = requests[:_OVERVIEW_ROWS], max(len(requests) - _OVERVIEW_ROWS, 0)
    if by.may(Permission.SEE_MARKET):
        values["cheapest"] = routes_jobs.cheapest(caller, _GPU, _AGO)
    return drawn("overview.html", by, values, title="Overview", at="/", live=True)
