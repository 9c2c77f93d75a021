"""Jobs as results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, JsonValue

from broker.app.jobs.bills import Bill
from broker.app.jobs.jobs import Progress, last_step
from broker.app.jobs.past_events import JobStory
from broker.app.results import reasons
from broker.app.results.money import BudgetShareResult, MoneyByKind, shares_of
from broker.app.results.values import Moment, Result, Seconds, moment_text
from broker.core.errors import UnreadableJob
from broker.core.events import events as ev
from broker.core.events.outcomes import AttemptState, Cause, JobState
from broker.core.events.views import AttemptView, JobView, SavedCheckpoint
from broker.core.events.wait_reasons import EndReason, WaitReason
from broker.core.job.after import When
from broker.core.job.arrays import JobArray
from broker.core.job.jobs import Workload
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.policy.approvals import RequestedApproval
from broker.core.policy.coverage_words import covered
from broker.core.values.money import Money
from broker.ledger.journal import TaskCounts
from broker.reconciler.progress import billed_time, machine_time, steps_redone


class CheckpointResult(Result):
    """A durable resume point."""

    id: str
    step: int | None
    size_bytes: int
    at: Moment

    @classmethod
    def of(cls, saved: SavedCheckpoint) -> Self:
        return cls.from_parts(saved, size_bytes=saved.size)


class AttemptPlacement(Result):
    """Where an attempt runs, at which price (USD an hour for all nodes, as of a time)."""

    provider: str
    region: str
    zone: str | None
    instance_type: str
    accelerator: str | None
    count: int
    nodes: int
    capacity_type: CapacityType
    money: MoneyKind
    rate_per_hour: Money
    price_as_of: Moment
    source: str
    expected_cost: Money


class SkippedCheckpoint(Result):
    """A checkpoint that an attempt did not resume from."""

    checkpoint: str
    because: str


class AttemptDetails(Result):
    """One attempt. Times are null where it has not happened."""

    number: int
    key: str
    state: AttemptState
    cause: Cause | None
    evidence: str
    exit_status: int | None
    engine: str
    placement: AttemptPlacement
    requested_at: Moment
    launched_at: Moment | None
    up_since: Moment | None
    running_at: Moment | None
    notice_at: Moment | None
    ended_at: Moment | None
    gone_at: Moment | None
    gone: bool
    machine_time: Seconds
    resumed_from: str | None
    resumed_from_step: int | None
    step: int | None
    passed_over: list[SkippedCheckpoint]
    checkpoints: list[CheckpointResult]

    @classmethod
    def of(cls, attempt: AttemptView, now: datetime) -> Self:
        offer = attempt.placement.offer
        return cls.from_parts(
            attempt,
            placement=AttemptPlacement.from_parts(
                attempt.placement,
                offer,
                rate_per_hour=attempt.placement.rate,
                price_as_of=offer.as_of,
            ),
            machine_time=machine_time(attempt, now),
            resumed_from_step=attempt.resumed_step,
            step=attempt.last_step,
        )


class PendingApproval(Result):
    """The pending approval of a job, and its approvers. Amounts in USD. ``whom``: those who can decide, in words;
    ``extension``: more is requested for a job that has begun."""

    at: Moment
    expires_at: Moment | None
    approvers: list[str]
    whom: str
    extension: bool
    because: str
    total: Money
    covers: str
    max_cost: Money | None
    max_duration: Seconds | None

    @classmethod
    def of(cls, asked: RequestedApproval, requester: str) -> Self:
        because = "; ".join(question.because for question in asked.open)
        return cls.from_parts(asked, whom=asked.whom(requester), because=because, covers=covered(asked))


class TaskStates(Result):
    """How the tasks of an array stand: so many of ``count``. ``paused``: they wait for a person;
    ``stopped``: early, as `stop_when` asks."""

    count: int
    not_started: int
    waiting: int
    running: int
    paused: int
    succeeded: int
    failed: int
    cancelled: int
    stopped: int

    @classmethod
    def of(cls, array: JobArray, counts: TaskCounts) -> Self:
        def some(*states: JobState) -> int:
            return sum(counts.states.get(state, 0) for state in states)

        return cls(
            count=array.count,
            not_started=array.count - counts.started,
            waiting=some(JobState.QUEUED, JobState.PLANNED, JobState.INTERRUPTED),
            running=some(JobState.LAUNCHING, JobState.RUNNING),
            paused=some(JobState.AWAITING_APPROVAL, JobState.PAUSED_BUDGET),
            succeeded=some(JobState.SUCCEEDED),
            failed=some(JobState.FAILED),
            cancelled=some(JobState.CANCELLED),
            stopped=some(JobState.STOPPED),
        )


class FailedTask(Result):
    """A task of an array that failed, and why; ``parameters``: the variables in which it differs from the others."""

    id: str
    index: int
    parameters: dict[str, str]
    because: str

    @classmethod
    def of(cls, array: JobArray, task: JobView) -> Self:
        index = task.job.task.index if task.job.task else 0
        return cls(id=task.id, index=index, parameters=array.parameters(index), because=reasons.ended(task.ending))


class PredecessorResult(Result):
    """A job that this one comes after: ``when`` it has succeeded or ended. ``inputs``: its results that this one
    takes."""

    job: str
    when: When
    inputs: list[str]


class JobDetails(Result):
    """A job. Amounts in USD; ``savings`` against the cheapest on-demand placement, only after the job has ended."""

    id: str
    name: str
    state: JobState
    user: str
    team: str | None
    project: str | None
    workload: Workload
    submitted_at: Moment
    ended_at: Moment | None
    closed: bool
    because: str
    end_reason: EndReason | None
    waiting_because: str
    wait_reason: WaitReason | None
    asked: PendingApproval | None
    cancel_requested: bool
    deadline: Moment | None
    deadline_missed: bool
    deadline_at_risk: bool
    max_cost: Money | None
    max_duration: Seconds
    billed_time: Seconds
    step: int | None
    total_steps: int | None
    phase: str | None
    expected_finish: Moment | None
    checkpoint: CheckpointResult | None
    interruptions: int
    failures: int
    steps_redone: int
    attempt_count: int
    attempts: list[AttemptDetails]
    cost: MoneyByKind
    held: MoneyByKind
    hold_quantile: float | None
    budget_shares: list[BudgetShareResult]
    cost_so_far: Money
    on_demand_cost: Money | None
    savings: Money | None
    savings_percent: float | None
    array: str | None
    tasks: TaskStates | None
    after: list[PredecessorResult]

    @classmethod
    def of(cls, view: JobView, bill: Bill, progress: Progress | None, now: datetime, **more: Any) -> Self:
        percent = None
        if bill.savings is not None and bill.on_demand:
            percent = round(100 * bill.savings.micros / bill.on_demand.micros, 1)
        return cls.from_parts(
            view.job,
            view,
            because=reasons.ended(view.ending),
            end_reason=view.ending,
            waiting_because=reasons.waits(view.waiting),
            wait_reason=view.waiting,
            asked=PendingApproval.of(view.asked, view.user) if view.asked else None,
            billed_time=billed_time(view, now),
            step=progress.step if progress and progress.step is not None else last_step(view),
            total_steps=progress.total if progress else None,
            phase=progress.phase if progress else None,
            expected_finish=progress.finish if progress else None,
            steps_redone=steps_redone(view),
            attempts=[AttemptDetails.of(attempt, now) for attempt in view.attempts],
            cost=MoneyByKind.of(bill.spent),
            held=MoneyByKind.of(bill.held),
            hold_quantile=bill.quantile,
            budget_shares=shares_of(bill.shares),
            cost_so_far=bill.so_far,
            on_demand_cost=bill.on_demand,
            savings=bill.savings,
            savings_percent=percent,
            array=view.job.task.array if view.job.task else None,
            tasks=TaskStates.of(view.job.array, bill.tasks) if view.job.array and bill.tasks else None,
            **more,
        )


class JobHistory(JobDetails):
    """A job and everything that happened to it, in order. Each event has ``seq``, ``at``, ``attempt``, ``type`` and
    the fields of its type. ``events_missing``: why events that are in the archive are not among them; null: all are.
    ``failed_tasks``: of an array, the first of them. ``kept_until``: of an ended job, when the
    active policy lets its ``checkpoints`` (all but the newest), ``results`` and ``logs`` go; null: it does not."""

    events: list[dict[str, JsonValue]]
    events_missing: str | None
    failed_tasks: list[FailedTask]
    kept_until: dict[str, Moment | None]

    @classmethod
    def told(
        cls,
        view: JobView,
        bill: Bill,
        progress: Progress | None,
        now: datetime,
        story: JobStory,
        failed: Iterable[JobView] = (),
        kept: Mapping[str, datetime | None] | None = None,
    ) -> Self:
        array = view.job.array
        failed_tasks = [FailedTask.of(array, task) for task in failed] if array else []
        happened = [_event(event) for event in story.events]
        more = {"events_missing": story.missing, "failed_tasks": failed_tasks, "kept_until": dict(kept or {})}
        return cls.of(view, bill, progress, now, events=happened, **more)


def _event(event: ev.Event) -> dict[str, Any]:
    body: BaseModel = event.body
    told = {"seq": event.seq, "at": moment_text(event.at), "attempt": event.attempt, **body.model_dump(mode="json")}
    match body:
        case ev.JobEnded():
            return told | {"because": reasons.ended(body.reason)}
        case ev.NothingFeasible() | ev.Paused() | ev.LaunchDelayed():
            return told | {"because": reasons.waits(body.reason)}
        case _:
            return told


class UnreadableResult(Result):
    """A job that this version cannot read: the known fields, and the reason."""

    id: str
    name: str
    user: str
    state: str
    because: str
    written_by_newer_version: bool
    hint: str

    @classmethod
    def of(cls, job: UnreadableJob) -> Self:
        return cls.from_parts(job, id=job.job_id, written_by_newer_version=job.newer)


class JobList(Result):
    """Jobs, newest first; tasks of an array in the order of their start."""

    jobs: list[JobDetails]
    unreadable: list[UnreadableResult]

    @classmethod
    def of(cls, billed: Sequence[tuple[JobView, Bill]], unreadable: Iterable[UnreadableJob], now: datetime) -> Self:
        return cls(
            jobs=[JobDetails.of(view, bill, None, now) for view, bill in billed],
            unreadable=[UnreadableResult.of(one) for one in unreadable],
        )


class AttemptList(Result):
    """The attempts of a job, in order."""

    id: str
    attempts: list[AttemptDetails]


class LoggedLine(Result):
    """A line that an attempt of the job printed."""

    attempt: int
    line: str


class JobLogs(Result):
    """The output of a job, oldest first."""

    id: str
    lines: list[LoggedLine]
