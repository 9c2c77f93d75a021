"""Jobs as results: one job, one job with its events, a list of jobs, the attempts of a job."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Unpack

from broker.agent.formats import Intervals
from broker.app.billing.budget_documents import MoneyByKind
from broker.app.jobs import jobs
from broker.app.jobs.background import leader_objection
from broker.app.jobs.bills import Bill, bill_of, bills_of, costs_of
from broker.app.jobs.documents import (
    AttemptDetails,
    AttemptList,
    CostedAttempt,
    FailedTask,
    JobDetails,
    JobList,
    UnreadableResult,
)
from broker.app.jobs.history_documents import JobHistory, PlacementDecision, PlacementDecisions
from broker.app.jobs.retention import retention_ends
from broker.app.runs_root import full_disks, run_folders
from broker.app.wiring import Broker
from broker.core.errors import BrokerError, StoreProblem
from broker.core.events.agent_events import ResourceUse
from broker.core.events.views import JobView
from broker.core.job.jobs import Job
from broker.core.market.offers import MoneyKind
from broker.core.policy.decisions import Decision, inputs_of
from broker.core.policy.policy import ActionKind, Usage
from broker.core.records import unknown_fields
from broker.core.values import figures
from broker.core.values.money import Money
from broker.ledger.entries import Account
from broker.reconciler.progress import steps_redone

_MAX_THREADS = 8  # run folders, which may be far away
_SILENCE_AFTER = timedelta(seconds=3 * Intervals().mail)  # two heartbeats are missing


def details(broker: Broker, view: JobView, *, progress: bool = False) -> JobDetails:
    """The job with its bill; with ``progress`` also the progress of its node, read from the run folder."""
    node_progress = jobs.progress(broker, view) if progress else None
    return JobDetails.of(view, bill_of(broker, view), node_progress, broker.clock.now())


def history(broker: Broker, view: JobView, *, followed: bool = False) -> JobHistory:
    """The job with its bill, its progress, and its events up to the state of ``view``. ``followed``: the caller
    restarts a reconciler that stopped, and need not know whether one runs."""
    array, now, node_progress = view.job.array, broker.clock.now(), jobs.progress(broker, view)
    try:
        retention_times = retention_ends(view, broker.policy().defaults)
    except BrokerError:  # a job is shown even if a policy cannot be read
        retention_times = {}
    return JobHistory.of(
        view,
        bill_of(broker, view),
        node_progress,
        now,
        as_of=now,
        troubles=[]
        if view.closed
        else [
            *_version_troubles(broker, view.job),
            *full_disks(broker, view.job),
            *_silence(node_progress, now, broker.clock.scale),
        ],
        time_scale=broker.clock.scale,
        reconciled=followed or broker.store.is_led(),
        events=jobs.events(broker, view),
        failed_tasks=[FailedTask.of(array, task) for task in jobs.failed_tasks(broker, view)] if array else [],
        kept_until=retention_times,
    )


def _version_troubles(broker: Broker, job: Job) -> list[str]:
    """In words, if this version or the one that runs the jobs does not know all that the job asks for."""
    fields, objection = ", ".join(unknown_fields(job)), leader_objection(broker, job)
    own = [f"a newer gpubroker submitted it: {fields} is not shown here"] if fields else []
    return [*own, f"nothing happens to it: {objection}"] if objection else own


def _silence(node_progress: jobs.Progress | None, now: datetime, scale: float) -> list[str]:
    """In words, if the node of a running job misses two heartbeats: its agent was killed, or its disk is full."""
    if node_progress is None or node_progress.seen_at is None or now - node_progress.seen_at < _SILENCE_AFTER * scale:
        return []
    age = figures.length(now - node_progress.seen_at)
    return [f"last heard of {age} ago: its command may have ended, or its machine may be gone"]


def listing(broker: Broker, *, held: bool = True, **criteria: Unpack[jobs.JobCriteria]) -> JobList:
    """As `jobs.search`. ``held``: with the budgets of held money, which takes reading the policies."""
    matches = jobs.search(broker, **criteria)
    running = [view for view in matches.views if view.latest is not None and not view.latest.state.final]
    with ThreadPoolExecutor(_MAX_THREADS) as threads:
        reports = threads.map(partial(jobs.progress, broker), running)
    progress = {view.id: report for view, report in zip(running, reports, strict=True)}
    bills = bills_of(broker, matches.views) if held else costs_of(broker, matches.views)
    return job_list(broker, matches, bills, progress, _task_details(broker, criteria.get("array"), matches.views))


def _task_details(broker: Broker, array_id: str | None, views: Sequence[JobView]) -> dict[str, dict[str, Any]]:
    """The parameters and the newest metrics of each of these tasks of an array; nothing without an array."""
    array = None if array_id is None else jobs.find_array(broker, array_id).job.array
    if array is None:
        return {}
    with broker.store.reading() as reader:
        metrics = reader.last_reports([view.id for view in views])
    return {
        view.id: {
            "parameters": array.parameters(view.job.task.index) if view.job.task else {},
            "metrics": metrics.get(view.id, {}),
        }
        for view in views
    }


def job_list(
    broker: Broker,
    matches: jobs.JobMatches,
    bills: Sequence[Bill],
    progress: Mapping[str, jobs.Progress | None] | None = None,
    extra_by_id: Mapping[str, Mapping[str, Any]] | None = None,
) -> JobList:
    """These jobs, with the bill of each. ``progress`` of those that run, and ``extra_by_id`` fields, by the job's
    id."""
    now, running, extra_fields = broker.clock.now(), progress or {}, extra_by_id or {}
    return JobList(
        as_of=now,
        time_scale=broker.clock.scale,
        jobs=[
            JobDetails.of(view, bill, running.get(view.id), now, **extra_fields.get(view.id, {}))
            for view, bill in zip(matches.views, bills, strict=True)
        ],
        unreadable=[UnreadableResult.of(unreadable_job) for unreadable_job in matches.unreadable],
    )


def attempts(broker: Broker, view: JobView) -> AttemptList:
    """Every attempt of the job. Raises `UnreadableJob`."""
    now, spent = broker.clock.now(), defaultdict[int | None, Counter[MoneyKind]](Counter)
    with broker.store.reading() as reader:
        for entry in reader.entries(view.id):
            if entry.account is Account.SPENT:
                spent[entry.tags.attempt][entry.money] += entry.amount.micros
    every_attempt = jobs.every_attempt(broker, view)
    redone = steps_redone(every_attempt)
    return AttemptList(
        id=view.id,
        attempts=[
            CostedAttempt.from_parts(
                AttemptDetails.of(attempt, now),
                cost=MoneyByKind.of({kind: Money(micros) for kind, micros in spent[attempt.number].items()}),
                steps_redone=redone.get(attempt.number, 0),
            )
            for attempt in every_attempt
        ],
    )


MAX_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class AttemptSamples:
    """The samples of one attempt, oldest first: percent of the busiest accelerator of a node. ``use``: of its first
    machine."""

    attempt: int
    use: ResourceUse
    samples: Sequence[Usage]


def gpu_use(broker: Broker, view: JobView) -> Sequence[AttemptSamples]:
    """The samples of the job's newest attempts that have any, the newest attempt first. Raises `Unreachable`."""
    folder = run_folders(broker).of(view.id)
    attempts = [entry for entry in view.attempts if entry.claimed_at is not None][-MAX_ATTEMPTS:]
    samples = [AttemptSamples(entry.number, entry.use, folder.usage(entry.number)) for entry in reversed(attempts)]
    return [entry for entry in samples if entry.samples or entry.use]


_PLACEMENT_KINDS = (ActionKind.LAUNCH, ActionKind.RE_PLACE)


def placement_decisions(broker: Broker, view: JobView, *, limit: int) -> PlacementDecisions:
    """The decisions among the job's newest ``limit`` that chose a placement, newest first, except those without
    recorded inputs. Raises `StoreProblem` for a record that was altered."""
    with broker.store.reading() as reader:
        recorded_decisions = reader.decisions(job_id=view.id, limit=limit)
    placements = [
        _placement_decision(decision) for decision in recorded_decisions if decision.action in _PLACEMENT_KINDS
    ]
    return PlacementDecisions(id=view.id, decisions=[decision for decision in placements if decision is not None])


def _placement_decision(decision: Decision) -> PlacementDecision | None:
    try:
        inputs = inputs_of(decision)
    except ValueError as error:
        raise StoreProblem(
            str(error), hint="the store was changed by another program; restore it from a backup"
        ) from error
    placement = None if inputs is None else inputs.action.placement
    return None if inputs is None or placement is None else PlacementDecision.of(decision, inputs, placement)
