"""Finds, lists and cancels submitted jobs, and reads their logs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypedDict, Unpack

from broker.app.runs_root import run_folders
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import BrokerError, InvalidInput, NotAllowed, UnknownName, UnreadableJob, closest
from broker.core.events import events as ev
from broker.core.events import lifecycle
from broker.core.events.outcomes import JobState
from broker.core.events.views import AttemptView, JobView
from broker.core.job.arrays import task_id
from broker.core.job.jobs import Job

if TYPE_CHECKING:
    from broker.store.jobs.job_rows import JobListFilter, JobPage, JobPlace
    from broker.store.jobs.reader import StoreReader

MAX_EARLIER_SESSIONS = 50  # jobs of one name that are searched for an open session
_MAX_MATCHES = 200  # jobs read, with the same name or the same beginning of the id, at most
_OPEN = [state.value for state in JobState if not state.final]
_MAX_IDS_SHOWN = 10  # ids in a message


def find(broker: Broker, reference: str, teams: Collection[str | None] | None = None) -> JobView:
    """The job with that id, the open job of that name, the newest ended one if none is open, or the only job whose id
    begins with ``reference``; an array and its tasks, whose ids begin with its own, count as one. Only jobs of
    ``teams`` (None: all) are looked for. Raises `UnknownName`, whose suggestions are of all teams, `InvalidInput` if
    several open jobs have that name, and `UnreadableJob` for a job that this version cannot read."""
    limit = 1 if teams is None else _MAX_MATCHES
    with broker.store.reading() as reader:
        exact = reader.job(reference)
        if exact is not None and _of_teams([exact], teams):
            return exact
        named_views = _of_teams(_jobs_named(reader, reference, limit), teams)
        if named_views and reader.unreadable:  # one of the same name
            raise reader.unreadable[0]
        if named_views:
            refuse_several(reference, [view.id for view in named_views if not view.state.final])
            return named_views[0]
        prefix_matches = _of_teams(reader.jobs_begun(reference, limit=limit + 1), teams) if reference else []
        if not prefix_matches and reference and not reader.unreadable:
            prefix_matches = _of_teams(_tasks_with_prefix(reader, reference), teams)
        if len(prefix_matches) == 1 and not reader.unreadable:
            return prefix_matches[0]
        if not prefix_matches and reader.unreadable:
            raise reader.unreadable[0]
        raise unknown_job(reference, {view.id: view.job.name for view in reader.jobs(limit=50)})


def unknown_job(reference: str, known: Mapping[str, str]) -> UnknownName:
    """The error for a job that is not ``known`` (names by id); it suggests a similar name or id."""
    return UnknownName("job", reference, known, meant=closest(reference, known.values()) or "")


def refuse_several(name: str, open_ids: Sequence[str]) -> None:
    """Raises `InvalidInput` if several open jobs have the name: a change to the wrong one would cost money."""
    if len(open_ids) > 1:
        ids = ", ".join(open_ids[:_MAX_IDS_SHOWN]) + (", …" if len(open_ids) > _MAX_IDS_SHOWN else "")
        raise InvalidInput(f"{len(open_ids)} open jobs are named {name!r}: {ids}; give an id")


def _jobs_named(reader: StoreReader, name: str, limit: int) -> list[JobView]:
    """The jobs and tasks of that name: the open ones, then those of the newest ``limit`` that have ended; both newest
    first."""
    open_views = list(reader.jobs(name=name, states=_OPEN, limit=_MAX_MATCHES, with_tasks=True))
    return open_views + [view for view in reader.jobs(name=name, limit=limit, with_tasks=True) if view.state.final]


def matching_jobs(broker: Broker, reference: str, teams: Collection[str] | None, limit: int) -> Sequence[JobView]:
    """The jobs that ``reference`` may mean, as in `find`, among those of the teams (None: all): by id, then by name,
    open ones first, newest first, then by the beginning of the id."""
    with broker.store.reading() as reader:
        exact = reader.job(reference)
        candidates = [exact] if exact is not None else _jobs_named(reader, reference, _MAX_MATCHES)
        if not candidates and reference:
            candidates = list(reader.jobs_begun(reference, limit=_MAX_MATCHES))
    return _of_teams(candidates, teams)[:limit]


def _of_teams(views: Sequence[JobView], teams: Collection[str | None] | None) -> Sequence[JobView]:
    return [view for view in views if teams is None or view.job.team in teams]


def refuse_second_session(job: Job, namesakes: Sequence[JobView]) -> None:
    """Raises `InvalidInput` if the job is a session and one of these jobs of the same person and name is an open one:
    both would use the same home folder."""
    if job.session is None:
        return
    for view in namesakes:
        if view.job.session is not None and not view.state.final:
            raise InvalidInput(
                f"the session {job.name} is open: {view.id} is {view.state.value.replace('_', ' ')}",
                hint=f"`gpubroker ssh {view.id}` enters it; `gpubroker cancel {view.id}` ends it and saves its"
                " home; another --name opens a second one",
            )


def find_single(broker: Broker, reference: str) -> JobView:
    """As `find`, for use cases that need attempts, output or results, which an array does not have: raises also
    `InvalidInput` for an array."""
    view = find(broker, reference)
    if (array := view.job.array) is not None:
        task = task_id(view.id, array.number(0))
        raise InvalidInput(
            f"{view.id} is an array: each of its tasks has attempts, output and results of its own",
            hint=f"name a task, such as {task}; `gpubroker jobs list --where array={view.id}` lists them",
        )
    return view


def find_array(broker: Broker, reference: str) -> JobView:
    """As `find`; raises also `InvalidInput` for a job that is not an array."""
    view = find(broker, reference)
    if view.job.array is None:
        raise InvalidInput(f"{view.id} is not an array", hint=f"`gpubroker status {view.id}` shows the job")
    return view


def _tasks_with_prefix(reader: StoreReader, reference: str) -> Sequence[JobView]:
    """The task whose id begins with ``reference``; if there are several, their arrays."""
    tasks = reader.jobs_begun(reference, limit=2, with_tasks=True)
    if len(tasks) < 2:
        return tasks
    return reader.views(sorted({task.job.task.array for task in tasks if task.job.task}))


def cancel(broker: Broker, view: JobView, *, by: Actor) -> JobView:
    """Request that the job, or all tasks of an array, be stopped after a last checkpoint. Idempotent; a job that has
    ended stays as it is. Raises `NotAllowed` for another person's job."""
    check_owner(view, by)
    with broker.store.writing() as tx:
        current = tx.job(view.id) or view
        if current.cancel_requested or current.state.final:
            return current
        cancel_event, now = ev.CancelRequested(by=by.identity), broker.clock.now()
        for task in tx.open_tasks(view.id) if view.job.array else ():
            if not task.cancel_requested and not task.state.final:
                tx.append(task.id, [(None, cancel_event)], now)
        return tx.append(view.id, [(None, cancel_event)], now)


def check_owner(view: JobView, by: Actor) -> None:
    """Raises `NotAllowed` unless ``by`` submitted the job or is an administrator of its team or of all teams."""
    if not by.may_act_for(view.user, view.job.team):
        raise NotAllowed(f"{view.id} is {view.user}'s job, and you are {by.identity}", hint=f"ask {view.user}")


_MAX_FAILED_TASKS = 20


def logs(broker: Broker, view: JobView, attempt: int | None = None, node: int | None = None) -> Iterator[str]:
    """The lines that the job's command printed, oldest first: of all attempts or of one, of all nodes or of one. Raises
    `InvalidInput` for a node that the job does not have, `Unreachable`."""
    if node is not None and node >= view.job.num_nodes:
        raise InvalidInput(f"{view.id} has no node {node}; its nodes are 0 to {view.job.num_nodes - 1}")
    folder, nodes = run_folders(broker).of(view.id), view.job.num_nodes
    for candidate in view.attempts:
        if attempt in (None, candidate.number) and candidate.handle is not None:
            for rank in range(nodes) if node is None else [node]:
                mark = f"[{rank}] " if node is None and nodes > 1 else ""
                yield from (mark + line for line in folder.logs(candidate.number, rank))


def every_attempt(broker: Broker, view: JobView) -> Sequence[AttemptView]:
    """All attempts of the job, in order, also those that its view only counts. Raises `UnreadableJob`."""
    if not view.folded:
        return view.attempts
    return lifecycle.every_attempt(events(broker, view))


def failed_tasks(broker: Broker, view: JobView) -> Sequence[JobView]:
    """The first tasks of an array that failed, at most 20; none of any other job."""
    if view.job.array is None:
        return []
    with broker.store.reading() as reader:
        return reader.tasks_of(view.id, [JobState.FAILED.value], limit=_MAX_FAILED_TASKS)


def is_waiting_for_people(view: JobView) -> bool:
    """Whether the job continues only after a person acts."""
    return view.state in (JobState.AWAITING_APPROVAL, JobState.PAUSED_BUDGET)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of the running attempt at its last heartbeat (``seen_at``, UTC). ``finish`` (UTC): extrapolated from
    the steps of this attempt, else the plan's; None if neither is known."""

    step: int | None
    total: int | None
    phase: str
    seen_at: datetime | None
    finish: datetime | None


def progress(broker: Broker, view: JobView) -> Progress | None:
    """The progress of the job; None if nothing runs, or its run folder cannot be read at the moment."""
    attempt = view.latest
    if attempt is None or attempt.state.final or attempt.handle is None:
        return None
    try:
        node = run_folders(broker).read(view, attempt)
    except BrokerError:
        return None
    finish = attempt.placement.finish
    steps_done = (node.step or 0) - (attempt.resumed_step or 0)
    if attempt.running_at is not None and node.heartbeat_at is not None and node.total and steps_done > 0:
        pace = (node.heartbeat_at - attempt.running_at) / steps_done
        finish = node.heartbeat_at + pace * max(node.total - (node.step or 0), 0)
    return Progress(node.step, node.total, node.phase, node.heartbeat_at, finish)


def last_step(view: JobView) -> int | None:
    """The last step of the latest attempt, or the step of the last checkpoint."""
    latest, checkpoint = view.latest, view.checkpoint
    if latest is not None and latest.last_step is not None:
        return latest.last_step
    return checkpoint.step if checkpoint else None


def events(broker: Broker, view: JobView) -> Sequence[ev.Event]:
    """The job's events so far, in order; they may go beyond the state of ``view``."""
    with broker.store.reading() as reader:
        return reader.events(view.id)


def job_page(broker: Broker, criteria: JobListFilter, *, after: JobPlace | None, limit: int) -> JobPage:
    """One page of the jobs that match, newest first; users and teams may be patterns."""
    with broker.store.reading() as reader:
        users, teams = (
            _expand_patterns(reader, criteria.users, "user"),
            _expand_patterns(reader, criteria.teams, "team"),
        )
        return reader.job_page(replace(criteria, users=users, teams=teams), after=after, limit=limit)


@dataclass(frozen=True, slots=True)
class JobMatches:
    """The jobs that match, newest first. ``unreadable``: those among them that this version cannot read."""

    views: Sequence[JobView]
    unreadable: Sequence[UnreadableJob]


class JobCriteria(TypedDict, total=False):
    """Which jobs: those that match all; an empty field matches all. ``users``, ``teams``: names or shell-style
    patterns. ``array``: an id: its tasks in these states instead, in the order of their start. ``limit``: None: all."""

    states: Sequence[JobState]
    users: Sequence[str]
    teams: Sequence[str]
    limit: int | None
    array: str | None


def search(broker: Broker, **criteria: Unpack[JobCriteria]) -> JobMatches:
    """The jobs that match, newest first."""
    states, limit, array = criteria.get("states", ()), criteria.get("limit"), criteria.get("array")
    with broker.store.reading() as reader:
        if array is not None:
            tasks = reader.tasks_of(array, [state.value for state in states], limit=limit)
            return JobMatches(tasks, reader.unreadable)
        state_names = [state.value for state in states]
        users, teams = (
            _expand_patterns(reader, criteria.get("users", ()), "user"),
            _expand_patterns(reader, criteria.get("teams", ()), "team"),
        )
        return JobMatches(reader.jobs(states=state_names, users=users, teams=teams, limit=limit), reader.unreadable)


def _expand_patterns(reader: StoreReader, names: Collection[str], field: str) -> Collection[str]:
    """The names, with those of jobs that match a pattern in place of it; the pattern itself if none does."""
    if not any(set("*?[") & set(name) for name in names):
        return names
    known_names = sorted(reader.names_in_jobs()[field])
    return [
        match
        for name in names
        for match in ([known_name for known_name in known_names if fnmatchcase(known_name, name)] or [name])
    ]
