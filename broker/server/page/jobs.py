"""Jobs with their output, files and cancellation, and approval requests."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, Query
from fastapi.responses import RedirectResponse, Response

from broker.app.access import sessions
from broker.app.jobs import jobs, story
from broker.app.jobs.details import gpu_use
from broker.app.jobs.documents import JobDetails
from broker.app.use_cases import approvals
from broker.app.use_cases import jobs as use_cases
from broker.app.use_cases.changes import change, single_line
from broker.app.use_cases.jobs import JobFilter, JobPage
from broker.app.use_cases.pages import MAX_ROWS
from broker.app.use_cases.visible import changeable
from broker.core.access.people import Permission
from broker.core.errors import InvalidInput, RetryLater, UnknownName
from broker.core.events.agent_events import MetricsReported
from broker.core.events.outcomes import JobState
from broker.core.values.figures import plural
from broker.core.values.units import parse_duration
from broker.server.api.routes import JobStream, stream_response
from broker.server.page.charts import HEIGHT, WIDTH, Scale, figure_curve, figure_curves, job_span
from broker.server.page.csv_files import AsCsv, csv_file
from broker.server.page.render import moment, render_page
from broker.server.page.visitors import By, Form, Renewal, request_key

JOBS_PATH = "/jobs"
_ROWS = 50
_LANES = 12  # attempts of a timeline
_LINES = 40  # of output on the page of a job
_MAX_LINES = 2_000
_DECISIONS = 10  # the newest decisions that are looked at; those about placement are shown

Text = Annotated[str, Query(max_length=200)]
Cursor = Annotated[str | None, Query(max_length=500)]


_PEOPLE = (JobState.AWAITING_APPROVAL, JobState.PAUSED_BUDGET)
_WITH_MACHINES = (JobState.LAUNCHING, JobState.RUNNING)
STATE_GROUPS = {
    "": ("All", ()),
    "people": ("Need a person", _PEOPLE),
    "running": ("Running", _WITH_MACHINES),
    "waiting": ("Waiting", (JobState.QUEUED, JobState.PLANNED, JobState.INTERRUPTED)),
    "failed": ("Failed", (JobState.FAILED,)),
    "ended": ("Ended", tuple(state for state in JobState if state.final)),
}
"""The filters by several states: their words and their states; none: all."""


SORTS = {"": "Needs action first", "newest": "Newest first", "cost": "Dearest first"}
"""The orders of a page of jobs, and their words."""
SINCE = {"": "Any time", "1d": "Last day", "7d": "Last 7 days", "30d": "Last 30 days"}
_COLUMNS = (
    "id name user team project state_in_words because waiting_because submitted_at ended_at deadline expected_finish"
    " step total_steps attempt_count interruptions billed_time cost_so_far cost.cash cost.amortised cost.sandbox"
    " held.total max_cost"
)


@dataclass(frozen=True)
class JobQuery:
    """The address of a list of jobs. ``state``: of `STATE_GROUPS`, or a single one; ``sort``: of `SORTS`; ``since``: a
    length of time before now. An empty field matches everything."""

    state: Text = ""
    q: Annotated[str, Query(max_length=100)] = ""
    team: Text = ""
    user: Text = ""
    since: Annotated[str, Query(max_length=20)] = ""
    sort: Annotated[str, Query(max_length=20)] = ""

    def filter(self, now: datetime) -> JobFilter:
        """Raises `UnknownName`, and `InvalidInput` for a length of time that is none."""
        group = STATE_GROUPS.get(self.state, ("", tuple(known for known in JobState if known == self.state)))
        if not group[1] and self.state:
            raise UnknownName("state", self.state, [*filter(None, STATE_GROUPS), *JobState])
        if self.sort not in SORTS:
            raise UnknownName("order", self.sort, [*filter(None, SORTS)])
        try:
            since = now - parse_duration(self.since) if self.since else None
        except (ValueError, OverflowError) as error:
            raise InvalidInput(str(error), where="since") from error
        teams, users = ([name] if name else None for name in (self.team, self.user))
        return JobFilter(list(group[1]), teams, users, q=self.q.strip(), since=since)


def job_list(by: By, asked: Annotated[JobQuery, Depends()], cursor: Cursor = None, csv: AsCsv = False) -> Response:
    """Jobs in pages, newest first: of each page those that need a person first, then the dearest ones, and those that
    have ended folded; or in another order of `SORTS`."""
    job_filter = asked.filter(by.caller.broker.clock.now())
    result = use_cases.list_jobs(by.caller, job_filter, limit=MAX_ROWS if csv else _ROWS, cursor=cursor)
    if csv:
        return csv_file("jobs", _COLUMNS, _rest(by, job_filter, result))

    def address(**more: str) -> str:
        query = {name: value for name, value in (vars(asked) | more).items() if value}
        return f"{JOBS_PATH}?{urlencode(query)}" if query else JOBS_PATH

    ordered, folds = list(result.jobs), not asked.sort
    if asked.sort != "newest":
        ordered.sort(key=_urgency if folds else lambda job: -(job.cost_so_far + job.held.total).micros)
    values = {
        "page": result,
        "open": [job for job in ordered if not folds or not job.state.final],
        "ended": [job for job in ordered if folds and job.state.final],
        "stoppable": {job.id for job in result.jobs if _may_stop(by, job)},
        "asked": vars(asked),
        "groups": {name: word for name, (word, _) in STATE_GROUPS.items()},
        "sorts": SORTS,
        "times": SINCE,
        "address": address,
        "more": address(cursor=result.next_cursor) if result.next_cursor else "",
        "first": cursor is None,
        "may_submit": by.may(Permission.SUBMIT),
    }
    return render_page("jobs.html", by, values, title="Jobs", at=JOBS_PATH)


def _rest(by: By, job_filter: JobFilter, page: JobPage) -> Iterator[JobDetails]:
    """The jobs of this page and of all that follow."""
    yield from page.jobs
    while page.next_cursor:
        page = use_cases.list_jobs(by.caller, job_filter, MAX_ROWS, page.next_cursor)
        yield from page.jobs


def _may_stop(by: By, job: JobDetails) -> bool:
    needed = Permission.CHANGE_OWN_JOBS if job.user == by.caller.actor.identity else Permission.CHANGE_TEAM_JOBS
    return not job.state.final and not job.cancel_requested and by.caller.access.may(needed, job.team)


def _urgency(job: JobDetails) -> tuple[bool, int]:
    in_trouble = job.needs_attention or job.deadline_missed or job.deadline_at_risk
    return not in_trouble, -(job.cost_so_far + job.held.total).micros


def job(by: By, id: str) -> Response:
    """One job: the end of its output, its attempts as a timeline, its placement, its cost (USD) with the reasons, and
    its events."""
    view = by.caller.job(id)
    details = use_cases.show_job(by.caller, id)
    output = by.caller.access.may(Permission.SEE_OUTPUT, view.job.team)
    job_events = jobs.events(by.caller.broker, view)
    attempts = use_cases.job_attempts(by.caller, id).attempts
    values = {
        "job": details,
        "attempts": attempts,
        "lanes": attempts[-_LANES:],
        "span": job_span(attempts[-_LANES:], details, by.caller.broker.clock.now()) if attempts else None,
        "causes": {attempt.number: story.cause_text(attempt.cause) for attempt in attempts},
        "why": use_cases.job_placements(by.caller, id, limit=_DECISIONS).decisions,
        "story": story.story_lines(job_events, view.submitted_at, moment),
        "reported": figure_curves(
            (event.at, event.body.metrics) for event in job_events if isinstance(event.body, MetricsReported)
        ),
        "wide": WIDTH,
        "high": HEIGHT,
        "accelerated": any(attempt.placement.offer.count and attempt.claimed_at for attempt in view.attempts),
        "shown_lines": _LINES,
        "lines": use_cases.job_logs(by.caller, id, tail=_LINES).lines if output else None,
        "may_clone": by.caller.access.may(Permission.SUBMIT, view.job.team),
        "may_cancel": _may_stop(by, details),
    }
    return render_page("job.html", by, values, title=f"{view.job.name} – job {view.id}", at=JOBS_PATH, live=True)


def job_news(by: By, id: str, seconds: Annotated[int, Query(ge=0, le=600)] = 300) -> Response:
    """What happens to a job from now on, as server-sent events: the page then renews its figures."""
    caller, view = by.caller, by.caller.job(id)
    stream = JobStream(caller.broker, id, view.seq, 0, output=False)
    return stream_response(caller, stream, seconds, lambda: sessions.resume(caller.broker, by.session, used=False))


def job_output(
    by: By,
    id: str,
    attempt: Annotated[int | None, Query(ge=1)] = None,
    lines: Annotated[int, Query(ge=1, le=_MAX_LINES)] = _MAX_LINES,
) -> Response:
    """The last lines of a job's output, renewed until the job has ended."""
    output = use_cases.job_logs(by.caller, id, attempt=attempt, tail=lines)
    ended = by.caller.job(id).state.final
    query = urlencode({"lines": lines} | ({"attempt": attempt} if attempt else {}))
    renewed_at = "" if ended or by.renewal is not Renewal.IN_PLACE else f"{JOBS_PATH}/{id}/output?{query}"
    values = {"id": id, "lines": output.lines, "attempt": attempt, "most": lines, "renewed_at": renewed_at}
    page = render_page("output.html", by, values, title=f"Output of {id}", at=JOBS_PATH)
    if ended:  # replaces the element that polls, so that the polling ends
        page.headers["HX-Reswap"] = "outerHTML"
    return page


def job_files(by: By, id: str) -> Response:
    """The results and finished checkpoints of a job."""
    files, saved = use_cases.list_files(by.caller, id), use_cases.list_checkpoints(by.caller, id)
    return render_page("files.html", by, {"files": files, "saved": saved}, title=f"Files of {id}", at=JOBS_PATH)


def job_usage(by: By, id: str) -> Response:
    """The utilization of a job's accelerators, by attempt."""
    view = by.caller.job(id, Permission.SEE_OUTPUT)
    try:
        usages = gpu_use(by.caller.broker, view)
    except RetryLater as error:
        usages, trouble = (), error.message
    else:
        trouble = ""
    curves = [
        (
            usage.attempt,
            story.use_text(usage.use),
            usage.samples
            and figure_curve("busy", [(sample.at, sample.percent) for sample in usage.samples], Scale(0, 100)),
        )
        for usage in usages
    ]
    values = {"id": id, "curves": curves, "trouble": trouble, "wide": WIDTH, "high": HEIGHT}
    return render_page("usage.html", by, values, title=f"Accelerators of {id}", at=JOBS_PATH)


_MAX_CANCELLED = 50  # jobs in one form


def cancel_form(by: By, id: str) -> Response:
    return _cancel_form(by, [id])


def cancel_several_form(by: By, job: Annotated[list[str] | None, Query(max_length=_MAX_CANCELLED)] = None) -> Response:
    """The question before the jobs of a list are cancelled."""
    return _cancel_form(by, list(dict.fromkeys(job or ())))


def _cancel_form(by: By, ids: list[str]) -> Response:
    views = [changeable(by.caller, id) for id in ids]
    chosen = [use_cases.show_job(by.caller, view.id) for view in views]
    title = f"Cancel {chosen[0].name if len(chosen) == 1 else plural(len(chosen), 'job')}?"
    return render_page("cancel.html", by, {"jobs": chosen}, title=title, at=JOBS_PATH)


def cancel(by: By, id: str, form: Form) -> Response:
    """Cancel the job, after a last checkpoint. Idempotent."""
    change(by.caller, request_key(form), use_cases.cancel_job, id=id)
    return RedirectResponse(f"{JOBS_PATH}/{id}", 303)


def cancel_several(by: By, form: Form) -> Response:
    """Cancel the jobs, each after a last checkpoint: all of them, or none if the visitor may not change one. Idempotent
    by the form's key."""
    key, ids = request_key(form), form.get("jobs", "").split()[:_MAX_CANCELLED]
    for id in ids:
        changeable(by.caller, id)
    for id in ids:
        own_key = sha256(f"{key} {id}".encode()).hexdigest()[: len(key)]
        change(by.caller, own_key, use_cases.cancel_job, id=id)
    return RedirectResponse(JOBS_PATH, 303)


APPROVALS_PATH = "/approvals"
_MAX_REASON = 500


def approval_list(
    by: By,
    decided: Annotated[bool, Query()] = False,
    skip: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    csv: AsCsv = False,
) -> Response:
    """The page of requests (`_ROWS` of them, after the first ``skip``), standing grants and purchases; with buttons
    for approvers."""
    listing = approvals.list_approvals(by.caller, decided=decided)
    if csv:
        columns = "job name user asked_by team project state asked_at expires_at total decided_at decided_by reason"
        return csv_file("approvals", columns, listing.requests)
    visible = listing.model_copy(update={"requests": listing.requests[skip : skip + _ROWS]})
    more = skip + _ROWS if len(listing.requests) > skip + _ROWS else None
    answerable = {
        request.job
        for request in visible.requests
        if request.mine and by.caller.access.may(Permission.APPROVE, request.team)
    }
    values = {"found": visible, "answerable": answerable, "decided": decided, "more": more, "of": len(listing.requests)}
    return render_page("approvals.html", by, values, title="Approvals", at=APPROVALS_PATH)


def grant(by: By, id: str, form: Form) -> Response:
    """Approve the request for the rules whose approver this person is. Idempotent by the form's key. Raises
    `NotAllowed`, `UnknownName`."""
    return _decide(by, id, form, approvals.grant_approval)


def refuse(by: By, id: str, form: Form) -> Response:
    return _decide(by, id, form, approvals.refuse_approval)


def _decide(by: By, id: str, form: Form, decision: Callable[..., JobDetails]) -> Response:
    reason = single_line(form.get("reason", "").strip())
    if len(reason) > _MAX_REASON:
        raise InvalidInput(f"expected at most {_MAX_REASON} characters", where="reason")
    change(by.caller, request_key(form), decision, id=id, reason=reason)
    return RedirectResponse(APPROVALS_PATH, 303)
