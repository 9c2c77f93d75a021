"""Finds, lists and cancels submitted jobs, and reads their logs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypedDict, Unpack

from broker.app.jobs.runs_root import run_folders
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import BrokerError, InvalidInput, NotAllowed, UnknownName, UnreadableJob
from broker.core.events import events as ev
from broker.core.events import lifecycle
from broker.core.events.outcomes import JobState
from broker.core.events.views import AttemptView, JobView
from broker.core.job.arrays import task_id
from broker.core.job.jobs import Job

if TYPE_CHECKING:
    from broker.store.jobs.pages import FoundPage, JobPlace, WantedJobs
    from broker.store.jobs.reading import StoreReading

EARLIER = 50  # jobs of one name that are searched for an open session
_MATCHES = 200  # jobs read, with the same name or the same beginning of the id, at most
_OPEN = [state.value for state in JobState if not state.final]
_NAMED = 10  # ids in a message


def find(broker: Broker, reference: str) -> JobView:
    """The job with that id, the open job of that name, the newest ended one if none is open, or the only job whose id
    begins with ``reference``; an array and its tasks, whose ids begin with its own, count as one. Raises `UnknownName`,
    `InvalidInput` if several open jobs have that name, and `UnreadableJob` for a job that this version cannot read."""
    with broker.store.reading() as look:
        exact = look.job(reference)
        if exact is not None:
            return exact
        named = _named(look, reference, 1)
        if named and look.unreadable:  # one of the same name
            raise look.unreadable[0]
        if named:
            refuse_several(reference, [view.id for view in named if not view.state.final])
            return named[0]
        begun = look.jobs_begun(reference, limit=2) if reference else []
        if not begun and reference and not look.unreadable:
            begun = _tasks_begun(look, reference)
        if len(begun) == 1 and not look.unreadable:
            return begun[0]
        if not begun and look.unreadable:
            raise look.unreadable[0]
        known = [view.id for view in look.jobs(limit=50)]
    raise UnknownName("job", reference, known)


def refuse_several(name: str, open_ids: Sequence[str]) -> None:
    """Raises `InvalidInput` if several open jobs have the name: a change to the wrong one would cost money."""
    if len(open_ids) > 1:
        ids = ", ".join(open_ids[:_NAMED]) + (", …" if len(open_ids) > _NAMED else "")
        raise InvalidInput(f"{len(open_ids)} open jobs are named {name!r}: {ids}; give an id")


def _named(look: StoreReading, name: str, limit: int) -> list[JobView]:
    """The jobs and tasks of that name: the open ones, then those of the newest ``limit`` that have ended; both newest
    first."""
    found = list(look.jobs(name=name, states=_OPEN, limit=_MATCHES, with_tasks=True))
    return found + [view for view in look.jobs(name=name, limit=limit, with_tasks=True) if view.state.final]


def matches(broker: Broker, reference: str, teams: Collection[str] | None, limit: int) -> Sequence[JobView]:
    """The jobs that ``reference`` may mean, as in `find`, among those of the teams (None: all): by id, then by name,
    open ones first, newest first, then by the beginning of the id."""
    with broker.store.reading() as look:
        exact = look.job(reference)
        found = [exact] if exact is not None else _named(look, reference, _MATCHES)
        if not found and reference:
            found = list(look.jobs_begun(reference, limit=_MATCHES))
    return [one for one in found if teams is None or one.job.team in teams][:limit]


def refuse_second_session(job: Job, named: Sequence[JobView]) -> None:
    """Raises `InvalidInput` if the job is a session and one of these jobs of the same person and name is an open one:
    both would use the same home folder."""
    if job.session is None:
        return
    for view in named:
        if view.job.session is not None and not view.state.final:
            raise InvalidInput(
                f"the session {job.name} is open: {view.id} is {view.state.value.replace('_', ' ')}",
                hint=f"`gpubroker ssh {view.id}` enters it; `gpubroker jobs cancel {view.id}` ends it and saves its"
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
        raise InvalidInput(f"{view.id} is not an array", hint=f"`gpubroker jobs show {view.id}` shows the job")
    return view


def _tasks_begun(look: StoreReading, reference: str) -> Sequence[JobView]:
    """The task whose id begins with ``reference``; if there are several, their arrays."""
    tasks = look.jobs_begun(reference, limit=2, with_tasks=True)
    if len(tasks) < 2:
        return tasks
    return look.views(sorted({task.job.task.array for task in tasks if task.job.task}))


def cancel(broker: Broker, view: JobView, *, by: Actor) -> JobView:
    """Request that the job, or all tasks of an array, be stopped after a last checkpoint. Idempotent; a job that has
    ended stays as it is. Raises `NotAllowed` for another person's job."""
    check_owner(view, by)
    with broker.store.writing() as tx:
        current = tx.job(view.id) or view
        if current.cancel_requested or current.state.final:
            return current
        asked, now = ev.CancelRequested(by=by.identity), broker.clock.now()
        for task in tx.open_tasks(view.id) if view.job.array else ():
            if not task.cancel_requested and not task.state.final:
                tx.append(task.id, [(None, asked)], now)
        return tx.append(view.id, [(None, asked)], now)


def check_owner(view: JobView, by: Actor) -> None:
    """Raises `NotAllowed` unless ``by`` submitted the job or is an administrator of its team or of all teams."""
    if not by.may_act_for(view.user, view.job.team):
        raise NotAllowed(f"{view.id} is {view.user}'s job, and you are {by.identity}", hint=f"ask {view.user}")


_FAILED_SHOWN = 20


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
    with broker.store.reading() as look:
        return look.tasks_of(view.id, [JobState.FAILED.value], limit=_FAILED_SHOWN)


def waiting_for_people(view: JobView) -> bool:
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
    done = (node.step or 0) - (attempt.resumed_step or 0)
    if attempt.running_at is not None and node.heartbeat_at is not None and node.total and done > 0:
        pace = (node.heartbeat_at - attempt.running_at) / done
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
    with broker.store.reading() as look:
        return look.events(view.id)


def page(broker: Broker, wanted: WantedJobs, *, after: JobPlace | None, limit: int) -> FoundPage:
    """One page of the jobs that match, newest first; users and teams may be patterns."""
    with broker.store.reading() as look:
        users, teams = _in_full(look, wanted.users, "user"), _in_full(look, wanted.teams, "team")
        return look.job_page(replace(wanted, users=users, teams=teams), after=after, limit=limit)


@dataclass(frozen=True, slots=True)
class FoundJobs:
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


def search(broker: Broker, **wanted: Unpack[JobCriteria]) -> FoundJobs:
    """The jobs that match, newest first."""
    states, limit, array = wanted.get("states", ()), wanted.get("limit"), wanted.get("array")
    with broker.store.reading() as look:
        if array is not None:
            tasks = look.tasks_of(array, [state.value for state in states], limit=limit)
            return FoundJobs(tasks, look.unreadable)
        chosen = [state.value for state in states]
        users, teams = _in_full(look, wanted.get("users", ()), "user"), _in_full(look, wanted.get("teams", ()), "team")
        return FoundJobs(look.jobs(states=chosen, users=users, teams=teams, limit=limit), look.unreadable)


def _in_full(look: StoreReading, names: Collection[str], what: str) -> Collection[str]:
    """The names, with those of jobs that match a pattern in place of it; the pattern itself if none does."""
    if not any(set("*?[") & set(name) for name in names):
        return names
    known = sorted(look.names_in_jobs()[what])
    return [one for name in names for one in ([each for each in known if fnmatchcase(each, name)] or [name])]
