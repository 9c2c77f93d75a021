"""Jobs as results."""

from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from broker.app.billing.budget_documents import BudgetShareResult, MoneyByKind, budget_share_results
from broker.app.documents import Figure, Moment, Result, Seconds
from broker.app.jobs import reasons
from broker.app.jobs.bills import Bill
from broker.app.jobs.jobs import Progress, last_step
from broker.app.jobs.story import placement_text
from broker.core.errors import UnreadableJob
from broker.core.events.agent_events import PassedOver, ResourceUse
from broker.core.events.outcomes import AttemptState, Cause, JobState
from broker.core.events.views import AttemptView, JobView, SavedCheckpoint
from broker.core.events.wait_reasons import EndReason, OwnerMustStart, SecretsMissing, WaitReason
from broker.core.job.arrays import JobArray, TaskOf
from broker.core.job.jobs import When, Workload
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.policy.approvals import RequestedApproval
from broker.core.policy.coverage import coverage_text
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
    def of(cls, checkpoint: SavedCheckpoint) -> Self:
        return cls.from_parts(checkpoint, size_bytes=checkpoint.size)


class AttemptPlacement(Result):
    """Where an attempt runs, at which price (USD an hour for all nodes, as of a time). ``machine``: ``H100:8`` or
    ``cpu``; ``in_words``: all of it in one line."""

    in_words: str
    provider: str
    region: str
    zone: str | None
    instance_type: str
    machine: str
    accelerator: str | None
    count: int
    nodes: int
    capacity_type: CapacityType
    money: MoneyKind
    rate_per_hour: Money
    price_as_of: Moment
    source: str
    expected_cost: Money


class AttemptDetails(Result):
    """One attempt. Times are null where it has not happened. ``standby_until``: it is prepared while another one works,
    and dropped then. ``use``: of its first machine, by name, in the units of
    `broker.core.events.agent_events.ResourceUse`; empty if nothing was measured."""

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
    standby_until: Moment | None
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
    passed_over: list[PassedOver]
    checkpoints: list[CheckpointResult]
    use: ResourceUse

    @classmethod
    def of(cls, attempt: AttemptView, now: datetime) -> Self:
        offer = attempt.placement.offer
        return cls.from_parts(
            attempt,
            placement=AttemptPlacement.from_parts(
                attempt.placement,
                offer,
                in_words=placement_text(attempt.placement),
                rate_per_hour=attempt.placement.rate,
                price_as_of=offer.as_of,
            ),
            machine_time=machine_time(attempt, now),
            resumed_from_step=attempt.resumed_step,
            step=attempt.last_step,
        )


class PendingApproval(Result):
    """The pending approval of a job, and its approvers; ``whom``: the same in words, without those who may not
    approve what they asked for. ``extension``: of more money or time for a job that keeps running. Amounts in
    USD."""

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
    def of(cls, request: RequestedApproval, requester: str) -> Self:
        """``requester``: the owner of the job."""
        return cls.from_parts(
            request,
            whom=request.whom(requester),
            because="; ".join(question.because for question in request.open),
            covers=coverage_text(request),
        )


class TaskStates(Result):
    """The number of an array's tasks in each state, out of ``count``. ``paused``: they wait for a person."""

    count: int
    not_started: int
    waiting: int
    running: int
    paused: int
    succeeded: int
    failed: int
    cancelled: int

    @classmethod
    def of(cls, array: JobArray, counts: TaskCounts) -> Self:
        def count_in(*states: JobState) -> int:
            return sum(counts.states.get(state, 0) for state in states)

        return cls(
            count=array.count + counts.earlier,
            not_started=array.count - counts.started,
            waiting=count_in(JobState.QUEUED, JobState.PLANNED, JobState.INTERRUPTED),
            running=count_in(JobState.LAUNCHING, JobState.RUNNING),
            paused=count_in(JobState.AWAITING_APPROVAL, JobState.PAUSED_BUDGET),
            succeeded=count_in(JobState.SUCCEEDED),
            failed=count_in(JobState.FAILED),
            cancelled=count_in(JobState.CANCELLED),
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
        return cls(id=task.id, index=index, parameters=array.parameters(index), because=reasons.end_text(task.ending))


class PredecessorResult(Result):
    """A job that this one comes after: ``when`` it has succeeded or ended. ``inputs``: its results that this one
    takes."""

    job: str
    when: When
    inputs: list[str]


class PauseKind(StrEnum):
    """Why a job is paused: what made its launches fail, the rule that stopped
    it, or its limits of money and time."""

    LAUNCHES_FAILED = "launches_failed"
    STOPPED_BY_POLICY = "stopped_by_policy"
    LIMIT = "limit"


_PAUSES = {PauseKind.LAUNCHES_FAILED: "paused: launches failed", PauseKind.STOPPED_BY_POLICY: "paused by policy"}
_COMMAND_ENDS = {AttemptState.SUCCEEDED: "done", AttemptState.FAILED: "failed"}


class JobDetails(Result):
    """A job. Amounts in USD; ``savings`` against the cheapest on-demand placement, only after the job has ended.
    ``pause``: null unless it is paused until a person acts. ``task``: of which array it is a task, and its number.
    ``outputs``: the paths of its results, as in its file; ``machines``: those that its file names. ``parameters``,
    ``metrics``: of a task in a list of an array's tasks: the variables in which it differs from the others, and the
    metrics that it reported last."""

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
    pause: PauseKind | None
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
    task: TaskOf | None
    tasks: TaskStates | None
    after: list[PredecessorResult]
    outputs: list[str]
    machines: list[str] = Field(default_factory=list)
    parameters: dict[str, str] = Field(default_factory=dict)
    metrics: dict[str, float] = Field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        return self.state is JobState.SUCCEEDED

    @property
    def latest(self) -> AttemptDetails | None:
        """The newest attempt that carries, or carried, the job."""
        return next((attempt for attempt in reversed(self.attempts) if attempt.standby_until is None), None)

    @property
    def state_in_words(self) -> str:
        """The state; also that its end is requested, why it is paused, or how its command ended on a machine that
        stops."""
        if self.state.final:
            return self.state.value
        if self.cancel_requested:
            return "stopping"
        latest = self.latest
        if latest is not None and latest.up_since and not latest.gone and latest.state in _COMMAND_ENDS:
            return f"{_COMMAND_ENDS[latest.state]}, machine stopping"
        return _PAUSES.get(self.pause or PauseKind.LIMIT, self.state.value.replace("_", " "))

    @property
    def waits_for_people(self) -> bool:
        """Whether the job continues only after a person acts."""
        return self.state in (JobState.AWAITING_APPROVAL, JobState.PAUSED_BUDGET)

    @property
    def needs_attention(self) -> bool:
        """Whether a person must act before the job starts, continues, or gets what was asked for it."""
        waits_for_owner = isinstance(self.wait_reason, SecretsMissing | OwnerMustStart)
        return self.waits_for_people or self.asked is not None or waits_for_owner

    def __repr__(self) -> str:
        because = reasons.end_text_after_state(self.end_reason) or self.waiting_because
        parts = [self.id, self.state.value, self.cost_so_far.rounded(4), because]
        return f"<{type(self).__name__} {', '.join(filter(None, parts))}>"

    __str__ = __repr__

    @classmethod
    def of(cls, view: JobView, bill: Bill, progress: Progress | None, now: datetime, **extra: Any) -> Self:
        percent = None
        if bill.savings is not None and bill.on_demand:
            percent = round(100 * bill.savings.micros / bill.on_demand.micros, 1)
        return cls.from_parts(
            view.job,
            view,
            because=reasons.end_text(view.ending),
            end_reason=view.ending,
            waiting_because=reasons.wait_text(view.waiting),
            wait_reason=view.waiting,
            asked=PendingApproval.of(view.asked, view.user) if view.asked else None,
            pause=_pause(view),
            billed_time=billed_time(view, now),
            step=progress.step if progress and progress.step is not None else last_step(view),
            total_steps=progress.total if progress else None,
            phase=progress.phase if progress else None,
            expected_finish=progress.finish if progress else None,
            steps_redone=sum(steps_redone(view.attempts).values()),
            attempts=[AttemptDetails.of(attempt, now) for attempt in view.attempts],
            cost=MoneyByKind.of(bill.spent),
            held=MoneyByKind.of(bill.held),
            hold_quantile=bill.quantile,
            budget_shares=budget_share_results(bill.shares),
            cost_so_far=bill.so_far,
            on_demand_cost=bill.on_demand,
            savings=bill.savings,
            savings_percent=percent,
            machines=list(dict.fromkeys(machine.machine for machine in view.job.resources)),
            array=view.job.task.array if view.job.task else None,
            tasks=TaskStates.of(view.job.array, bill.tasks) if view.job.array and bill.tasks else None,
            **extra,
        )


def _pause(view: JobView) -> PauseKind | None:
    if view.state is not JobState.PAUSED_BUDGET:  # used for every pause that needs a person
        return None
    if view.failed_launches >= view.job.retry.launches:
        return PauseKind.LAUNCHES_FAILED
    is_policy_stop = view.latest is not None and view.latest.cause is Cause.STOPPED_BY_POLICY
    return PauseKind.STOPPED_BY_POLICY if is_policy_stop else PauseKind.LIMIT


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
    """Jobs, newest first; tasks of an array in the order of their start. ``as_of`` and ``time_scale`` as in the history
    of a job."""

    as_of: Moment
    time_scale: Figure
    jobs: list[JobDetails]
    unreadable: list[UnreadableResult]


class CostedAttempt(AttemptDetails):
    """An attempt with what was settled for it so far (USD), and the steps of an earlier one that it did again."""

    cost: MoneyByKind
    steps_redone: int


class AttemptList(Result):
    """The attempts of a job, in order."""

    id: str
    attempts: list[CostedAttempt]


class LoggedLine(Result):
    """A line that an attempt of the job, or of a task of the array, printed."""

    attempt: int
    line: str
    task: int | None = None


class JobLogs(Result):
    """The output of a job, oldest first."""

    id: str
    lines: list[LoggedLine]


class SubmissionTerms(Result):
    """``pool``: the caller's folder for uploads; ``max_snapshot``: the most bytes of a job's files; ``secrets_key``:
    the public key (X25519, base64) for which secrets are encrypted, null if this server takes none."""

    pool: str
    max_snapshot: int
    secrets_key: str | None


class JobFileText(Result):
    """A submitted job as the text of a job file (YAML), without secrets."""

    id: str
    job_file: str


class WrittenJobFile(Result):
    """A job file that was written on this machine, and its text (YAML). ``lost``: what could not be carried over from
    the file of another program, a sentence each."""

    file: Path
    text: str
    lost: list[str]
