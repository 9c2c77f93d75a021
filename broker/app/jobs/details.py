"""Jobs as results: one job, one job with its events, a list of jobs, the attempts of a job."""

from __future__ import annotations

from typing import Unpack

from broker.app.jobs import jobs
from broker.app.jobs.bills import bill_of, bills_of
from broker.app.jobs.keeping import kept_until
from broker.app.jobs.past_events import story
from broker.app.results.jobs import AttemptDetails, AttemptList, JobDetails, JobHistory, JobList
from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.core.events.views import JobView


def details(broker: Broker, view: JobView, *, progress: bool = False) -> JobDetails:
    """The job with its bill; with ``progress`` also the progress of its node, read from the run folder."""
    reported = jobs.progress(broker, view) if progress else None
    return JobDetails.of(view, bill_of(broker, view), reported, broker.clock.now())


def history(broker: Broker, view: JobView) -> JobHistory:
    """The job with its bill, its progress, and its events up to the state of ``view``."""
    told = story(broker, view)
    bill, progress = bill_of(broker, view), jobs.progress(broker, view)
    try:
        kept = kept_until(view, broker.policy().defaults)
    except BrokerError:  # a job is shown even if a policy cannot be read
        kept = {}
    failed = jobs.failed_tasks(broker, view)
    return JobHistory.told(view, bill, progress, broker.clock.now(), told, failed, kept)


def listing(broker: Broker, **wanted: Unpack[jobs.JobCriteria]) -> JobList:
    """As `jobs.search`."""
    found = jobs.search(broker, **wanted)
    billed = list(zip(found.views, bills_of(broker, found.views), strict=True))
    return JobList.of(billed, found.unreadable, broker.clock.now())


def attempts(broker: Broker, view: JobView) -> AttemptList:
    """Every attempt of the job. Raises `UnreadableJob`."""
    now = broker.clock.now()
    return AttemptList(
        id=view.id, attempts=[AttemptDetails.of(attempt, now) for attempt in jobs.every_attempt(broker, view)]
    )
