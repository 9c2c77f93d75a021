"""Jobs as results: one job, one job with its events, a list of jobs, the attempts of a job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Unpack

from broker.app.jobs import jobs
from broker.app.jobs.bills import Bill, bill_of, bills_of, costs_of
from broker.app.jobs.disk_space import full_disks
from broker.app.jobs.retention import kept_until
from broker.app.results.job_history import JobHistory
from broker.app.results.jobs import AttemptDetails, AttemptList, FailedTask, JobDetails, JobList, UnreadableResult
from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.core.events.views import JobView
from broker.core.values import figures

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
    return listed(broker, found, bills_of(broker, found.views) if held else costs_of(broker, found.views))


def listed(broker: Broker, found: jobs.FoundJobs, bills: Sequence[Bill]) -> JobList:
    """These jobs, with the bill of each."""
    now = broker.clock.now()
    return JobList(
        as_of=now,
        time_scale=broker.clock.scale,
        jobs=[JobDetails.of(view, bill, None, now) for view, bill in zip(found.views, bills, strict=True)],
        unreadable=[UnreadableResult.of(one) for one in found.unreadable],
    )


def attempts(broker: Broker, view: JobView) -> AttemptList:
    """Every attempt of the job. Raises `UnreadableJob`."""
    now = broker.clock.now()
    return AttemptList(
        id=view.id, attempts=[AttemptDetails.of(attempt, now) for attempt in jobs.every_attempt(broker, view)]
    )
