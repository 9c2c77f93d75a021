"""Why a job waits, was refused or is paused, why an attempt is stopped, and why a job ended: three closed unions in
events and views.

Each reason has a code (``kind``) and typed fields. Decisions compare types and fields; only the command line renders
them (`broker.app.jobs.reasons`). Fields named ``message``, ``evidence``, ``because``, ``note`` and ``text`` are for
display only. Amounts are USD, times UTC.
"""

from collections.abc import Hashable, Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from broker.core.events.outcomes import Cause, JobState
from broker.core.job.reasons import RuleObjection
from broker.core.market.offers import CapacityType
from broker.core.records import RecordOfKind
from broker.core.values.money import Money


class _Reason(RecordOfKind):
    @property
    def subject(self) -> Hashable | None:
        """The fields that distinguish it from a reason of the same kind; changing figures do not. None: every field."""
        return None


class NothingFits(_Reason):
    """No offer can be launched on now. ``counts``: how many offers each `Reason` turned down."""

    kind: Literal["nothing_fits"] = "nothing_fits"
    counts: dict[str, int]


class PolicyDenies(_Reason):
    """A policy denies it. ``everywhere``: every place that job and market leave was denied; an objection without a
    ``message`` was denied for several reasons in different places.
    """

    kind: Literal["policy_denies"] = "policy_denies"
    objections: tuple[RuleObjection, ...]
    everywhere: bool = False

    @property
    def subject(self) -> Hashable:
        return _rule_keys(self.objections)


class SecretsMissing(_Reason):
    """The process that launches jobs lacks these environment variables. ``owner``: their owner, if that process runs as
    another user, ``process_user``.
    """

    kind: Literal["secrets_missing"] = "secrets_missing"
    names: tuple[str, ...]
    owner: str = ""
    process_user: str = ""


class OwnerMustStart(_Reason):
    """Its commands would run on this machine as ``process_user``; only a process of ``owner`` may start them."""

    kind: Literal["owner_must_start"] = "owner_must_start"
    owner: str
    process_user: str


class QueueTurn(_Reason):
    """It waits for its turn on machines of ``pool``; empty if its turn is unknown. ``leaving``: the jobs of its team
    that were asked to make room for it; ``others``: how many of other teams were."""

    kind: Literal["queue_turn"] = "queue_turn"
    pool: str = ""
    leaving: tuple[str, ...] = ()
    others: int = 0

    @property
    def subject(self) -> Hashable:
        return self.pool


class StrategyWaits(_Reason):
    """The strategy waits for better capacity. ``pool``: for which, empty where it names none."""

    kind: Literal["strategy_waits"] = "strategy_waits"
    pool: str = ""
    because: str

    @property
    def subject(self) -> Hashable:
        return self.pool


class WaitsForPaid(_Reason):
    """It waits for a prepaid machine, expected to be free at ``until``, instead of renting one of ``rents_from``.
    ``saves``: in total, or per hour if the work is unknown (``an_hour``).
    """

    kind: Literal["waits_for_paid"] = "waits_for_paid"
    pool: str
    instance_type: str
    capacity_type: CapacityType
    until: datetime
    saves: Money
    an_hour: bool
    rents_from: str

    @property
    def subject(self) -> Hashable:
        return self.pool, self.rents_from, self.an_hour


class AwaitsApproval(_Reason):
    """These ``rules`` require an approval."""

    kind: Literal["awaits_approval"] = "awaits_approval"
    rules: tuple[str, ...] = ()
    because: str = ""


class ApprovalEnded(_Reason):
    """The request was rejected ``by`` an approver; empty: it expired."""

    kind: Literal["approval_ended"] = "approval_ended"
    by: str = ""
    note: str = ""


class MaxDurationUsed(_Reason):
    """The job's ``max_duration`` is used up."""

    kind: Literal["max_duration_used"] = "max_duration_used"
    limit_seconds: float


class MoneyRefused(_Reason):
    """``more`` money is needed and was denied; else the hold was denied for its time."""

    kind: Literal["money_refused"] = "money_refused"
    objections: tuple[RuleObjection, ...]
    more: bool

    @property
    def subject(self) -> Hashable:
        return self.more, _rule_keys(self.objections)


class MoneyTooLittle(_Reason):
    """The remaining money does not cover a start there, which costs ``least`` (USD)."""

    kind: Literal["money_too_little"] = "money_too_little"
    instance_type: str
    least: Money


class HoldTrigger(StrEnum):
    """Why held money must be judged again: it ends, it is used faster than was judged, or the clock was set back."""

    ENDS = "ends"
    FASTER = "faster"
    CLOCK_REWIND = "clock_rewind"


class HoldEnded(_Reason):
    """The money that was held for the attempt ended at this time (UTC)."""

    kind: Literal["hold_ended"] = "hold_ended"
    at: datetime


class MoreMoneyDenied(_Reason):
    """The hold had to be judged again and was denied. ``paid_until`` (UTC): when the present hold ends."""

    kind: Literal["more_money_denied"] = "more_money_denied"
    trigger: HoldTrigger
    paid_until: datetime
    objections: tuple[RuleObjection, ...]


class RulesDeny(_Reason):
    """Rules deny that it continues."""

    kind: Literal["rules_deny"] = "rules_deny"
    objections: tuple[RuleObjection, ...]


class MoveAdvantage(StrEnum):
    """Why another place is better: the strategy decides so, the queue would miss the deadline, it is worth it, the
    capacity here ends, or a job of higher priority needs it."""

    STRATEGY = "strategy"
    QUEUE_TOO_LONG = "queue_too_long"
    BETTER_VALUE = "better_value"
    CAPACITY_ENDS = "capacity_ends"
    GIVES_WAY = "gives_way"


class MovesElsewhere(_Reason):
    """The job moves ``to`` capacity of this type, of ``pool`` where one is known; None: nowhere for now. ``because``:
    what the strategy notes. ``job``: the one of its team that it gives way to; empty for one of another team.
    ``beside``: to a machine that is started while it works.
    """

    kind: Literal["moves_elsewhere"] = "moves_elsewhere"
    advantage: MoveAdvantage
    to: CapacityType | None
    pool: str = ""
    because: str = ""
    job: str = ""
    beside: bool = False

    @property
    def asker(self) -> str:
        return self.job or "a job of another team"


class AwaitsJobs(_Reason):
    """It waits for these jobs to end."""

    kind: Literal["awaits_jobs"] = "awaits_jobs"
    jobs: tuple[str, ...]


class PredecessorFailed(_Reason):
    """It never began: this job, which had to succeed first, ended in this ``state``."""

    kind: Literal["predecessor_failed"] = "predecessor_failed"
    job: str
    state: JobState


class Cancelled(_Reason):
    """A user stopped it for good."""

    kind: Literal["cancelled"] = "cancelled"


StopReason = Annotated[
    Cancelled | MaxDurationUsed | HoldEnded | MoreMoneyDenied | RulesDeny | MovesElsewhere,
    Field(discriminator="kind"),
]
"""Why the broker stops an attempt."""


class StoppedByPolicy(_Reason):
    """A rule stopped what ran: for the reason of the broker's stop, or by ``evidence`` of the node."""

    kind: Literal["stopped_by_policy"] = "stopped_by_policy"
    stop: StopReason | None = None
    evidence: str = ""


class MoneyEnded(_Reason):
    """The money that was held for the attempt was used up, and no more was granted: for the reason of the broker's
    stop, or by ``evidence`` of the node.
    """

    kind: Literal["money_ended"] = "money_ended"
    stop: StopReason | None = None
    evidence: str = ""


class AttemptStopped(_Reason):
    """Why its last attempt ended."""

    kind: Literal["attempt_stopped"] = "attempt_stopped"
    cause: Cause
    evidence: str = ""


class LaunchesFailed(_Reason):
    """Launches in a row failed before the job's agent reported. ``pools``: number of the newest failures by pool;
    ``attempt``: the last of them, 0 if no longer kept.
    """

    kind: Literal["launches_failed"] = "launches_failed"
    count: int
    pools: dict[str, int] = Field(default_factory=dict)
    attempt: int = 0
    cause: Cause | None = None
    evidence: str = ""


class LaunchTrouble(_Reason):
    """A launch could not be tried or verified, and is tried again. ``error``: the name of its class."""

    kind: Literal["launch_trouble"] = "launch_trouble"
    error: str
    message: str
    where: str = ""
    hint: str = ""


class Completed(_Reason):
    """The job's command succeeded."""

    kind: Literal["completed"] = "completed"


class TasksEnded(_Reason):
    """All tasks of the array are over, and not all of them succeeded: so many ``failed`` or were ``cancelled``, of
    ``count``."""

    kind: Literal["tasks_ended"] = "tasks_ended"
    failed: int
    cancelled: int
    count: int


WaitReason = Annotated[
    NothingFits
    | PolicyDenies
    | SecretsMissing
    | OwnerMustStart
    | QueueTurn
    | StrategyWaits
    | WaitsForPaid
    | AwaitsApproval
    | ApprovalEnded
    | MaxDurationUsed
    | MoneyRefused
    | MoneyTooLittle
    | StoppedByPolicy
    | MoneyEnded
    | AttemptStopped
    | LaunchesFailed
    | LaunchTrouble
    | AwaitsJobs,
    Field(discriminator="kind"),
]
"""Why a job waits or is paused."""

EndReason = Annotated[
    Completed | Cancelled | AttemptStopped | ApprovalEnded | TasksEnded | PredecessorFailed,
    Field(discriminator="kind"),
]
"""Why a job is over."""


def same_reason(first: WaitReason | None, second: WaitReason | None) -> bool:
    """Whether both are the same reason about the same thing, apart from changing figures."""
    if first is None or second is None or type(first) is not type(second) or first.subject is None:
        return first == second
    return first.subject == second.subject


def _rule_keys(objections: Iterable[RuleObjection]) -> Hashable:
    return frozenset((objection.rule, objection.name, objection.code, objection.source) for objection in objections)


def cause_text(cause: Cause | None, evidence: str) -> str:
    """Why an attempt ended, in words: ``lost: the node is gone``; of a command that failed, its exit status alone."""
    if evidence.startswith("exit status") and cause == Cause.EXIT_STATUS:
        return evidence
    return f"{cause}: {evidence}" if evidence else str(cause)
