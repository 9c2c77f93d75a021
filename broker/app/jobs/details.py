"""Jobs as results: one job, one job with its events, a list of jobs, the attempts of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Unpack

from broker.app.jobs import jobs
from broker.app.jobs.bills import Bill, bill_of, bills_of, costs_of
from broker.app.jobs.disk_space import full_disks
from broker.app.jobs.retention import kept_until
from broker.app.jobs.runs_root import run_folders
from broker.app.results.job_history import JobHistory, PlacementDecision, PlacementDecisions
from broker.app.results.jobs import AttemptDetails, AttemptList, FailedTask, JobDetails, JobList, UnreadableResult
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, StoreProblem
from broker.core.events.views import JobView
from broker.core.policy.decisions import Decision, inputs_of
from broker.core.policy.policy import ActionKind, Usage
from broker.core.values import figures

_AT_ONCE = 8  # run folders, which may be far away
_QUIET = timedelta(minutes=1)  # many times the pause between two heartbeats


def details(broker: Broker, view: JobView, *, progress: bool = False) -> JobDetails:
    """The job with its bill; with ``progress`` also the progress of its node, read from the run folder."""
    reported = jobs.progress(broker, view) if progress else None
    return JobDetails.of(view, bill_of(broker, view), reported, broker.clock.now())


def history(broker: Broker, view: JobView, *, followed: bool = False) -> JobHistory:
    """The job with its bill, its progress, and its events up to the state of ``view``. ``followed``: the caller
    restarts a reconciler that stopped, and need not know whether one runs."""
    array, now, reported = view.job.array, broker.clock.now(), jobs.progress(broker, view)
    try:
        kept = kept_until(view, broker.policy().defaults)
    except BrokerError:  # a job is shown even if a policy cannot be read
        kept = {}
    return JobHistory.of(
        view,
        bill_of(broker, view),
        reported,
        now,
        as_of=now,
        troubles=[] if view.closed else [*full_disks(broker, view.job), *_silence(reported, now, broker.clock.scale)],
        time_scale=broker.clock.scale,
        reconciled=followed or broker.store.is_led(),
        events=jobs.events(broker, view),
        failed_tasks=[FailedTask.of(array, task) for task in jobs.failed_tasks(broker, view)] if array else [],
        kept_until=kept,
    )


def _silence(reported: jobs.Progress | None, now: datetime, scale: float) -> list[str]:
    """In words, if the node of a running job has sent nothing for a while, as when the disk it writes to is full."""
    if reported is None or reported.seen_at is None or now - reported.seen_at < _QUIET * scale:
        return []
    age = figures.length(now - reported.seen_at)
    return [f"the node has sent nothing for {age}: if its command ended meanwhile, that could not be recorded yet"]


def listing(broker: Broker, *, held: bool = True, **wanted: Unpack[jobs.JobCriteria]) -> JobList:
    """As `jobs.search`. ``held``: with the budgets of held money, which takes reading the policies."""
    found = jobs.search(broker, **wanted)
    running = [view for view in found.views if view.latest is not None and not view.latest.state.final]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        reports = threads.map(partial(jobs.progress, broker), running)
    progress = {view.id: report for view, report in zip(running, reports, strict=True)}
    bills = bills_of(broker, found.views) if held else costs_of(broker, found.views)
    return listed(broker, found, bills, progress, _of_tasks(broker, wanted.get("array"), found.views))


def _of_tasks(broker: Broker, array_id: str | None, views: Sequence[JobView]) -> dict[str, dict[str, Any]]:
    """The parameters and the newest metrics of each of these tasks of an array; nothing without an array."""
    array = None if array_id is None else jobs.find_array(broker, array_id).job.array
    if array is None:
        return {}
    with broker.store.reading() as look:
        metrics = look.newest_metrics([view.id for view in views])
    return {
        view.id: {
            "parameters": array.parameters(view.job.task.index) if view.job.task else {},
            "metrics": metrics.get(view.id, {}),
        }
        for view in views
    }


def listed(
    broker: Broker,
    found: jobs.FoundJobs,
    bills: Sequence[Bill],
    progress: Mapping[str, jobs.Progress | None] | None = None,
    more: Mapping[str, Mapping[str, Any]] | None = None,
) -> JobList:
    """These jobs, with the bill of each. ``progress`` of those that run, and ``more`` fields, by the job's id."""
    now, running, beside = broker.clock.now(), progress or {}, more or {}
    return JobList(
        as_of=now,
        time_scale=broker.clock.scale,
        jobs=[
            JobDetails.of(view, bill, running.get(view.id), now, **beside.get(view.id, {}))
            for view, bill in zip(found.views, bills, strict=True)
        ],
        unreadable=[UnreadableResult.of(one) for one in found.unreadable],
    )


def attempts(broker: Broker, view: JobView) -> AttemptList:
    """Every attempt of the job. Raises `UnreadableJob`."""
    now = broker.clock.now()
    return AttemptList(
        id=view.id, attempts=[AttemptDetails.of(attempt, now) for attempt in jobs.every_attempt(broker, view)]
    )


MOST_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class AttemptSamples:
    """The samples of one attempt, oldest first: percent of the busiest accelerator of a node."""

    attempt: int
    samples: Sequence[Usage]


def gpu_use(broker: Broker, view: JobView) -> Sequence[AttemptSamples]:
    """The samples of the job's newest attempts that have any, the newest attempt first. Raises `Unreachable`."""
    folder = run_folders(broker).of(view.id)
    attempts = [one.number for one in view.attempts if one.claimed_at is not None][-MOST_ATTEMPTS:]
    found = [AttemptSamples(number, folder.usage(number)) for number in reversed(attempts)]
    return [one for one in found if one.samples]


_KINDS = (ActionKind.LAUNCH, ActionKind.RE_PLACE)


def why_here(broker: Broker, view: JobView, *, limit: int) -> PlacementDecisions:
    """The decisions among the job's newest ``limit`` that chose a placement, newest first, except those without
    recorded inputs. Raises `StoreProblem` for a record that was altered."""
    with broker.store.reading() as look:
        kept = look.decisions(job_id=view.id, limit=limit)
    found = [_told(one) for one in kept if one.action in _KINDS]
    return PlacementDecisions(id=view.id, decisions=[one for one in found if one is not None])


def _told(decision: Decision) -> PlacementDecision | None:
    try:
        inputs = inputs_of(decision)
    except ValueError as error:
        raise StoreProblem(
            str(error), hint="the store was changed by another program; restore it from a backup"
        ) from error
    placement = None if inputs is None else inputs.action.placement
    return None if inputs is None or placement is None else PlacementDecision.of(decision, inputs, placement)
