"""Jobs, their output and files, approvals and the queue. Each use case shows what its caller may see."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

from pydantic import AwareDatetime, Field

from broker.app.access.callers import Caller
from broker.app.jobs import details, job_files, job_sources, jobs
from broker.app.jobs.bills import bills_of
from broker.app.jobs.documents import AttemptList, JobDetails, JobFileText, JobList, JobLogs, LoggedLine
from broker.app.jobs.file_documents import CheckpointFiles, JobCheckpoints, JobOutputs
from broker.app.jobs.history_documents import JobHistory, JobLedger, PlacementDecisions
from broker.app.policy.trial_documents import RecordedDecisions
from broker.app.use_cases.pages import Cursor, Limit, cursor_of, cursor_time, parse_cursor
from broker.app.use_cases.visible import changeable
from broker.core.access.people import Permission
from broker.core.errors import InvalidInput
from broker.core.events.outcomes import JobState
from broker.core.job.file import print_job
from broker.ledger.entries import Account
from broker.store.jobs.job_rows import JobListFilter, JobPlace

_MAX_LINES = 5_000


@dataclass(frozen=True)
class JobFilter:
    """A filter of jobs: those that match all given fields."""

    state: Annotated[list[JobState] | None, Field(description="Only jobs in these states.")] = None
    team: Annotated[list[str] | None, Field(description="Only jobs of these teams, or patterns.")] = None
    user: Annotated[list[str] | None, Field(description="Only jobs of these persons, or patterns.")] = None
    reference: Annotated[
        str | None,
        Field(max_length=100, description="What a person calls a job: its id, its name, or how its id begins."),
    ] = None
    q: Annotated[str, Field(max_length=100, description="Part of the id, name, person or project, in any case.")] = ""
    since: Annotated[
        AwareDatetime | None, Field(description="Only jobs submitted then or later, with a time zone.")
    ] = None


def list_jobs(by: Caller, job_filter: JobFilter, limit: Limit = 50, cursor: Cursor = None) -> JobPage:
    """Jobs of the teams that the caller may see, newest first."""
    if job_filter.reference is not None:
        visible_teams = by.access.teams(Permission.SEE_JOBS)
        matches = jobs.matching_jobs(by.broker, job_filter.reference, visible_teams, limit)
        return _page(by, jobs.JobMatches(matches, ()), None)
    after = None
    if cursor is not None:
        at, id = parse_cursor(cursor, str, str)
        after = JobPlace(cursor_time(at), id)
    query = JobListFilter(
        states=tuple(state.value for state in job_filter.state or ()),
        users=job_filter.user or (),
        teams=job_filter.team or (),
        visible=by.access.teams(Permission.SEE_JOBS),
        text=job_filter.q,
        since=job_filter.since,
    )
    page = jobs.job_page(by.broker, query, after=after, limit=limit)
    next_cursor = None if page.next is None else cursor_of(page.next.submitted_at.isoformat(), page.next.id)
    return _page(by, jobs.JobMatches(page.views, page.unreadable), next_cursor)


def _page(by: Caller, matches: jobs.JobMatches, next_cursor: str | None) -> JobPage:
    details_page = details.job_list(by.broker, matches, bills_of(by.broker, matches.views))
    return JobPage.from_parts(details_page, next_cursor=next_cursor)


def show_job(by: Caller, id: str) -> JobHistory:
    """One job with its bill, its progress and its events."""
    return details.history(by.broker, by.job(id))


def job_attempts(by: Caller, id: str) -> AttemptList:
    """Every attempt of a job: place, duration, cause of its end."""
    return details.attempts(by.broker, by.job(id))


def job_ledger(by: Caller, id: str) -> JobLedger:
    """The ledger entries of a job, each with the source and age of its price; they add up to its cost."""
    view = by.job(id)
    with by.broker.store.reading() as reader:
        entries = [entry for entry in reader.entries(view.id) if entry.account is Account.SPENT]
    attempts = {attempt.number: attempt for attempt in jobs.every_attempt(by.broker, view)}
    return JobLedger.of(view.id, view.job.name, entries, attempts)


def job_placements(by: Caller, id: str, limit: Annotated[int, Field(ge=1, le=100)] = 10) -> PlacementDecisions:
    """Why a job runs where it does: its newest placement decisions, with the offers considered."""
    return details.placement_decisions(by.broker, by.job(id), limit=limit)


def job_logs(
    by: Caller,
    id: str,
    attempt: Annotated[int | None, Field(ge=1, description="Only this attempt.")] = None,
    node: Annotated[int | None, Field(ge=0, description="Only this node; 0 is the first.")] = None,
    tail: Annotated[int, Field(ge=1, le=_MAX_LINES, description="The last lines; with `start`, the next ones.")] = 500,
    start: Annotated[int | None, Field(ge=0, description="Number of lines to skip from the beginning.")] = None,
) -> JobLogs:
    """The end of a job's output, or what follows its first ``start`` lines: at most 5,000 lines and two million
    characters, oldest first."""
    view = by.job(id, Permission.SEE_OUTPUT)
    if attempt is not None and attempt > view.attempt_count:
        raise InvalidInput(f"{view.id} has no attempt {attempt}; it has {view.attempt_count}", where="attempt")
    numbers = [attempt] if attempt else [attempt_view.number for attempt_view in view.attempts]
    all_lines = ((n, text) for n in numbers for text in jobs.logs(by.broker, view, n, node))
    lines = _last_lines(all_lines, tail) if start is None else _next_lines(all_lines, start, tail)
    return JobLogs(id=view.id, lines=[LoggedLine(attempt=number, line=text) for number, text in lines])


Attempt = Annotated[int | None, Field(ge=1, description="Only files that this attempt wrote.")]


def list_files(
    by: Caller,
    id: str,
    attempt: Annotated[int | None, Field(ge=1, description="Only files that this attempt wrote.")] = None,
) -> JobOutputs:
    """The results of a job; each file from the newest attempt that wrote it."""
    return job_sources.outputs(by.broker, by.job(id, Permission.SEE_OUTPUT), attempt)


def list_checkpoints(by: Caller, id: str) -> JobCheckpoints:
    """The finished checkpoints of a job, oldest first."""
    return job_sources.checkpoints(by.broker, by.job(id, Permission.SEE_OUTPUT))


def checkpoint_files(by: Caller, id: str, checkpoint: str) -> CheckpointFiles:
    """The files of a checkpoint: the newest (`latest`), the newest at a step, or the one with that id or name."""
    view = by.job(id, Permission.SEE_OUTPUT)
    return CheckpointFiles.of(view, job_files.checkpoint(by.broker, view, checkpoint))


def job_decisions(by: Caller, id: str) -> RecordedDecisions:
    """The recorded decisions about a job, oldest first; for those who see all teams, with what the rules saw."""
    view = by.job(id)
    with by.broker.store.reading() as reader:
        recorded = RecordedDecisions.from_parts(decisions=list(reversed(reader.decisions(job_id=view.id))))
    if by.access.teams(Permission.SEE_ALL_TEAMS) is None:
        return recorded
    return RecordedDecisions(decisions=[decision.model_copy(update={"seen": {}}) for decision in recorded.decisions])


def job_file(by: Caller, id: str) -> JobFileText:
    """The job as a job file, as it was submitted, with the values of its variables: for members of its team. It names
    files of the machine that submitted it."""
    view = by.job(id, Permission.SUBMIT)
    return JobFileText(id=view.id, job_file=print_job(view.job))


def cancel_job(by: Caller, id: str) -> JobDetails:
    """End a job, after a last checkpoint. The unspent part of its hold is released."""
    return details.details(by.broker, jobs.cancel(by.broker, changeable(by, id), by=by.actor))


_MAX_OUTPUT = 2_000_000  # characters in one answer


def _last_lines(all_lines: Iterable[tuple[int, str]], limit: int) -> Sequence[tuple[int, str]]:
    lines: deque[tuple[int, str]] = deque(maxlen=limit)
    size = 0
    for number, text in all_lines:
        size += len(text) - (len(lines[0][1]) if len(lines) == limit else 0)
        lines.append((number, text[-_MAX_OUTPUT:]))
        while size > _MAX_OUTPUT and len(lines) > 1:
            size -= len(lines.popleft()[1])
    return list(lines)


def _next_lines(all_lines: Iterable[tuple[int, str]], start: int, limit: int) -> Sequence[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    size = 0
    for number, text in islice(all_lines, start, start + limit):
        size += len(text)
        if lines and size > _MAX_OUTPUT:
            break
        lines.append((number, text[-_MAX_OUTPUT:]))
    return lines


class JobPage(JobList):
    """``next_cursor``: that of the next page; null on the last page."""

    next_cursor: str | None
