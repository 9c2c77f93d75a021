"""Why a job waits, was refused or is paused, and why it ended: two closed unions that events and views carry.

Each reason has a code (``kind``) and typed fields. Decisions compare types and fields; only the command line puts them
into words (`broker.app.results.reasons`). Fields named ``message``, ``evidence``, ``because``, ``note`` and ``text``
hold what somebody else said, for people alone. Amounts are USD, times UTC.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from broker.core.events.outcomes import Cause
from broker.core.job.reasons import RuleObjection
from broker.core.market.offers import CapacityType
from broker.core.values.money import Money


class _Reason(BaseModel):
    # Built when first used, as events are.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_timedelta="float", defer_build=True)

    @property
    def subject(self) -> Hashable | None:
        """What makes it another reason than one of the same kind; figures that go on do not. None: every field."""
        return None


class NothingFits(_Reason):
    """No offer can be launched on now. ``counts``: how many offers each `Reason` turned down."""

    kind: Literal["nothing_fits"] = "nothing_fits"
    counts: dict[str, int]


class PolicyDenies(_Reason):
    """A policy denies it. ``everywhere``: what was denied is each place that the job and the market leave; the rules
    denied different places for different reasons where an objection has no ``message``."""

    kind: Literal["policy_denies"] = "policy_denies"
    objections: tuple[RuleObjection, ...]
    everywhere: bool = False

    @property
    def subject(self) -> Hashable:
        return _rules(self.objections)


class SecretsMissing(_Reason):
    """The process that launches jobs lacks these environment variables. ``owner``: of whom they are, where that process
    runs as somebody else, ``process_user``."""

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
    """It waits for its turn on machines of that ``pool``; empty: its turn is not known yet."""

    kind: Literal["queue_turn"] = "queue_turn"
    pool: str = ""


class StrategyWaits(_Reason):
    """The strategy waits for better capacity. ``pool``: for which, empty where it names none."""

    kind: Literal["strategy_waits"] = "strategy_waits"
    pool: str = ""
    because: str

    @property
    def subject(self) -> Hashable:
        return self.pool


class WaitsForPaid(_Reason):
    """It waits for a machine that is paid for already, expected to be free at ``until``, instead of renting one of
    ``rents_from``. ``saves``: in all, or an hour where nobody knows how much work there is (``an_hour``)."""

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
    """Somebody is asked first, by these ``rules``."""

    kind: Literal["awaits_approval"] = "awaits_approval"
    rules: tuple[str, ...] = ()
    because: str = ""


class ApprovalEnded(_Reason):
    """What was asked for was refused, ``by`` whom; nobody: the request expired."""

    kind: Literal["approval_ended"] = "approval_ended"
    by: str = ""
    note: str = ""


class MaxDurationUsed(_Reason):
    """The job's ``max_duration`` is used up."""

    kind: Literal["max_duration_used"] = "max_duration_used"
    limit_seconds: float


class MoneyRefused(_Reason):
    """``more`` money is needed and was refused; else what it holds was refused for the time it is for."""

    kind: Literal["money_refused"] = "money_refused"
    objections: tuple[RuleObjection, ...]
    more: bool

    @property
    def subject(self) -> Hashable:
        return self.more, _rules(self.objections)


class MoneyTooLittle(_Reason):
    """The money left does not pay for a start there, which takes ``least`` (USD)."""

    kind: Literal["money_too_little"] = "money_too_little"
    instance_type: str
    least: Money


class StoppedByPolicy(_Reason):
    """A rule stopped what ran."""

    kind: Literal["stopped_by_policy"] = "stopped_by_policy"
    evidence: str = ""


class MoneyEnded(_Reason):
    """The money that was held for the attempt was used up, and no more was granted."""

    kind: Literal["money_ended"] = "money_ended"
    evidence: str = ""


class AttemptStopped(_Reason):
    """Its last attempt ended so."""

    kind: Literal["attempt_stopped"] = "attempt_stopped"
    cause: Cause
    evidence: str = ""


class LaunchesFailed(_Reason):
    """So many launches in a row failed before the job's agent spoke. ``pools``: how many of the newest failed where;
    ``attempt``: the last of them, 0 where it is not kept any more."""

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


class EarlierWords(_Reason):
    """What a version wrote that kept a sentence and nothing else. It decides nothing."""

    kind: Literal["earlier_words"] = "earlier_words"
    text: str


class Completed(_Reason):
    """The job's command ended well."""

    kind: Literal["completed"] = "completed"


class Cancelled(_Reason):
    """Somebody wanted it stopped for good."""

    kind: Literal["cancelled"] = "cancelled"


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
    | EarlierWords,
    Field(discriminator="kind"),
]
"""Why a job waits or is paused."""

EndReason = Annotated[
    Completed | Cancelled | AttemptStopped | ApprovalEnded | EarlierWords, Field(discriminator="kind")
]
"""Why a job is over."""


def same_reason(one: WaitReason | None, other: WaitReason | None) -> bool:
    """Whether nothing new is to be said: the same reason about the same thing, though figures may have gone on."""
    if one is None or other is None or type(one) is not type(other) or one.subject is None:
        return one == other
    return one.subject == other.subject


def _rules(objections: Iterable[RuleObjection]) -> Hashable:
    return frozenset((one.rule, one.name, one.code, one.source) for one in objections)
