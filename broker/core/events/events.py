"""The events of a job: immutable facts in one ordered stream per job.

The stream is the source of truth; every view of a job is a projection of it (`broker.core.events.lifecycle.fold`). An
event with ``attempt`` None concerns the job itself. Times are UTC; ``at`` is the time it happened as far as known,
``seq`` the order of recording (1, 2, 3, … without gaps).
"""

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from broker.core.events.agent_events import AgentEvent
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.wait_reasons import EndReason, HoldTrigger, StopReason, WaitReason
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.capacity import MachineOutside
from broker.core.market.offers import MoneyKind
from broker.core.policy.approvals import Question
from broker.core.policy.facts import Fact
from broker.core.records import Record, RecordOfKind, add_stamp, read_stamped
from broker.core.values.money import Money

# --- about the job itself -------------------------------------------------------------------------------------------


class Baseline(Record):
    """The cheapest on-demand placement that could have done the same work at that moment: what savings are measured
    against. ``rate``: USD per hour, all nodes; ``throughput``: relative to the job's reference."""

    pool: str
    rate: Money
    throughput: float


class Submitted(RecordOfKind):
    """The job was accepted: the job, its user, its deadline as a time, and the on-demand cost."""

    kind: Literal["submitted"] = "submitted"
    job: Job
    user: str
    deadline: datetime | None = None
    max_duration_seconds: float
    work_seconds: float | None = None
    on_demand: Baseline | None = None


class ApprovalAsked(RecordOfKind):
    """A policy requires an approval; the money is held meanwhile. Fields as in `Asked`; an ``extension`` requests more
    money or time for a job that continues meanwhile. ``again``: its questions replace those of the open request for the
    same rules, and their approvals.
    """

    kind: Literal["approval_asked"] = "approval_asked"
    by: str = ""
    approvers: tuple[str, ...] = ()
    because: str = ""
    expires_at: datetime | None = None
    questions: tuple[Question, ...] = ()
    total: Money = Money.ZERO
    held: dict[MoneyKind, Money] = Field(default_factory=dict)
    gpus: int = 0
    lasts_seconds: float | None = None
    extension: bool = False
    again: bool = False
    max_cost: Money | None = None
    max_duration_seconds: float | None = None


class ApprovalGiven(RecordOfKind):
    """An approval of the requests of these ``rules`` (all open ones if empty). ``by`` empty: the active policies no
    longer require it. ``standing``: granted by a standing grant; ``total`` and the other limits are its limits for this
    job, and ``facts`` those each rule read.
    """

    kind: Literal["approval_given"] = "approval_given"
    by: str
    note: str = ""
    rules: tuple[str, ...] = ()
    standing: int | None = None
    total: Money = Money.ZERO
    gpus: int = 0
    lasts_seconds: float | None = None
    facts: dict[str, tuple[Fact, ...]] = Field(default_factory=dict)


class ApprovalRefused(RecordOfKind):
    """The request was rejected, or expired (``by`` empty)."""

    kind: Literal["approval_refused"] = "approval_refused"
    by: str = ""
    note: str = ""


class TasksStarted(RecordOfKind):
    """Tasks of the array were started: the first ones, or the first after it had to wait; none if paused ones continue.
    ``first``: the turn of the first of these, from 0; ``count``: how many."""

    kind: Literal["tasks_started"] = "tasks_started"
    first: int
    count: int


class PredecessorsEnded(RecordOfKind):
    """The jobs that it waits for have ended as required; it may start."""

    kind: Literal["predecessors_ended"] = "predecessors_ended"


class CancelRequested(RecordOfKind):
    """A request to stop the job for good, checkpoint first."""

    kind: Literal["cancel_requested"] = "cancel_requested"
    by: str


class Extended(RecordOfKind):
    """More money or time was granted; a paused job continues."""

    kind: Literal["extended"] = "extended"
    by: str
    max_cost: Money | None = None
    max_duration_seconds: float | None = None


class NothingFeasible(RecordOfKind):
    """The job waits: no placement can be launched now."""

    kind: Literal["nothing_feasible"] = "nothing_feasible"
    reason: WaitReason


class DeadlineMissed(RecordOfKind):
    """The deadline passed; the job continues."""

    kind: Literal["deadline_missed"] = "deadline_missed"


class DeadlineAtRisk(RecordOfKind):
    """The expected finish is past the deadline."""

    kind: Literal["deadline_at_risk"] = "deadline_at_risk"
    expected_finish: datetime | None = None
    because: str = ""


class Paused(RecordOfKind):
    """The money that was granted is used up (or the policy stopped it); it waits to be extended or cancelled."""

    kind: Literal["paused"] = "paused"
    reason: WaitReason


class JobEnded(RecordOfKind):
    """The job reached its final state."""

    kind: Literal["job_ended"] = "job_ended"
    state: JobState
    reason: EndReason | None = None


class JobClosed(RecordOfKind):
    """All machines are gone, the bill is settled, the remaining hold is released."""

    kind: Literal["job_closed"] = "job_closed"


# --- about one attempt ----------------------------------------------------------------------------------------------


class LaunchRequested(RecordOfKind):
    """The intent: written, with the money held, before any engine is called.

    ``standby_until`` (UTC): it is to stand by while the running attempt works, until it is `HandedOver` the job; if its
    machine is not ready by then, it is dropped.
    """

    kind: Literal["launch_requested"] = "launch_requested"
    key: str
    engine: str
    placement: Placement
    resume_from: str | None = None
    why: str = ""
    standby_until: datetime | None = None


class HandedOver(RecordOfKind):
    """The attempt before it is over: the standby carries the job from now on, and may restore and write."""

    kind: Literal["handed_over"] = "handed_over"


class Launched(RecordOfKind):
    """The engine accepted the launch."""

    kind: Literal["launched"] = "launched"
    handle: str


class ToppedUp(RecordOfKind):
    """``amount`` (USD) more was held for the running attempt, which may run until ``until`` (UTC)."""

    kind: Literal["topped_up"] = "topped_up"
    amount: Money
    until: datetime


class HoldDated(RecordOfKind):
    """The hold of the running attempt, ``amount`` (USD) in total, was judged for a new time: it is used at ``rate``
    (USD per hour) at most, and the attempt may run until ``until`` (UTC). The hold does not grow."""

    kind: Literal["hold_dated"] = "hold_dated"
    amount: Money
    rate: Money
    until: datetime
    trigger: HoldTrigger | None = None


class LaunchDelayed(RecordOfKind):
    """The launch could not be tried, or not be verified; it is tried again."""

    kind: Literal["launch_delayed"] = "launch_delayed"
    reason: WaitReason


class Queued(RecordOfKind):
    """The attempt waits in its engine's queue: no machine exists, and none is billed. Recorded once."""

    kind: Literal["queued"] = "queued"
    because: str = ""


class MachineUp(RecordOfKind):
    """The machine exists and is billed from ``since`` on."""

    kind: Literal["machine_up"] = "machine_up"
    since: datetime


class Entered(RecordOfKind):
    """``by`` ran ``program`` (its name, without arguments) inside the running attempt."""

    kind: Literal["entered"] = "entered"
    by: str
    program: str


class StopRequested(RecordOfKind):
    """The broker decided to stop the attempt, checkpoint first."""

    kind: Literal["stop_requested"] = "stop_requested"
    cause: Cause
    by: str = ""
    reason: StopReason | None = None


class AttemptEnded(RecordOfKind):
    """The attempt is over. ``step``: the last step it is known to have reached. ``reported``: by its agent, which does
    nothing more."""

    kind: Literal["attempt_ended"] = "attempt_ended"
    cause: Cause
    evidence: str = ""
    exit_status: int | None = None
    step: int | None = None
    reported: bool = False


class RemovalDelayed(RecordOfKind):
    """The engine failed to end the attempt's machine, which is still billed; the broker retries with back-off. Recorded
    once per attempt.
    """

    kind: Literal["removal_delayed"] = "removal_delayed"
    because: str


class MachineGone(RecordOfKind):
    """The machine is gone; billing ends at ``gone_at`` (None if none ever existed).

    ``interrupted``: whether the provider took the machine back, as the engine reports; None: the attempt's final state
    decides. ``own_end``: the provider does not confirm that it did, and the
    end counts as a failure of the job. ``never_existed``: the provider had no machine after all and bills none,
    whatever was reported before. ``outside``: the machines that came outside of the bought capacity meant for them, and
    cost the price on demand.
    """

    kind: Literal["machine_gone"] = "machine_gone"
    gone_at: datetime | None = None
    evidence: str = ""
    interrupted: bool | None = None
    own_end: bool = False
    never_existed: bool = False
    outside: tuple[MachineOutside, ...] = ()


EventBody = Annotated[
    Submitted
    | ApprovalAsked
    | ApprovalGiven
    | ApprovalRefused
    | TasksStarted
    | PredecessorsEnded
    | CancelRequested
    | Extended
    | NothingFeasible
    | DeadlineMissed
    | DeadlineAtRisk
    | Paused
    | JobEnded
    | JobClosed
    | LaunchRequested
    | HandedOver
    | Launched
    | LaunchDelayed
    | ToppedUp
    | Queued
    | HoldDated
    | MachineUp
    | AgentEvent
    | Entered
    | StopRequested
    | AttemptEnded
    | RemovalDelayed
    | MachineGone,
    Field(discriminator="kind"),
]


@cache
def _bodies() -> TypeAdapter[EventBody]:
    return TypeAdapter(EventBody)


@dataclass(frozen=True, slots=True)
class Event:
    """One fact in a job's stream."""

    job_id: str
    seq: int
    at: datetime
    attempt: int | None
    body: EventBody


def body_to_json(body: EventBody) -> str:
    """The body as the JSON text that the store keeps, with the number of its format."""
    return add_stamp(_bodies().dump_json(body, exclude_defaults=True).decode())


def body_from_json(text: str) -> EventBody:
    """The inverse of `body_to_json`. Raises `UnreadableRecord` for newer formats and malformed input."""
    return read_stamped(text, _bodies().validate_json)


def body_from(document: dict[str, Any]) -> EventBody:
    """The body whose ``model_dump(mode="json")`` this is. Raises pydantic's ValidationError."""
    return _bodies().validate_python(document)
