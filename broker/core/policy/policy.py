"""Inputs and verdicts of rules: the values of the gate through which every expense passes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from broker.core.errors import place
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.job.reasons import RuleObjection
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.market.shares import MachineShare
from broker.core.policy.facts import Fact
from broker.core.values.burns import Burn
from broker.core.values.money import Money


class ActionKind(StrEnum):
    """The kind of action. All pass the same gate."""

    LAUNCH = "launch"
    RE_PLACE = "re_place"
    EXTEND = "extend"
    RESERVE = "reserve"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True)
class Usage:
    """Utilization of an attempt's accelerators at a moment (UTC), in percent: the busiest one of all nodes."""

    at: datetime
    percent: float


@dataclass(frozen=True, slots=True)
class IdleLimit:
    """An idleness limit that a node can enforce alone: every accelerator below ``below`` percent for this time.
    ``told``: the end of the message about it: duration, limit, place of the rule.
    """

    below: float
    stretch: timedelta
    told: str


@dataclass(frozen=True, slots=True)
class Action:
    """An action that may cost money, for ``user``.

    ``placement``: the judged placement. ``hold``: requested money by kind, known for whole submissions, None for single
    placements; ``window``: the time for which the job may run. ``burns``: by kind, all the job would hold if allowed,
    with its time; ``own``: what it holds of that already, with its time. ``elapsed`` and ``spent``: progress of a
    running job (0 at launch); ``held``: its present hold. ``submitted_at``: None for a submission itself. ``attempts``:
    earlier ones. ``usage``: utilization samples, oldest first; empty if none. ``in_place``: only money, for a running
    job to continue where it is within its owner's limits: no start, no move. ``by_owner``: an extension that the owner
    requests and that starts nothing; otherwise the broker needs it for an admitted job. ``beside``: where the job works
    meanwhile, if the start is that of a standby.
    """

    kind: ActionKind
    job: Job
    user: str
    placement: Placement | None = None
    hold: Mapping[MoneyKind, Money] | None = None
    window: tuple[datetime, datetime] | None = None
    elapsed: timedelta = timedelta(0)
    spent: Money = Money.ZERO
    job_id: str | None = None
    held: Money = Money.ZERO
    submitted_at: datetime | None = None
    attempts: int = 0
    usage: tuple[Usage, ...] = ()
    in_place: bool = False
    by_owner: bool = False
    burns: Mapping[MoneyKind, Burn] = field(default_factory=dict)
    own: Mapping[MoneyKind, Burn] = field(default_factory=dict)
    beside: Placement | None = None

    def whose(self, per: str) -> str | None:
        """The ``user``, ``team`` or ``project`` of the action; None if it has none, or for another word."""
        return {"user": self.user, "team": self.job.team, "project": self.job.project}.get(per)

    def dated(self, kinds: Iterable[MoneyKind]) -> list[Burn]:
        """All the job would hold of these kinds, dated. Undated requests are spread evenly over the window."""
        if self.burns or not self.hold or self.window is None:
            return [self.burns[kind] for kind in kinds if kind in self.burns]
        return [Burn.evenly(self.hold[kind], self.window) for kind in kinds if kind in self.hold]

    @property
    def covers(self) -> tuple[datetime, datetime] | None:
        """The time its money covers (UTC); None without requested or dated money."""
        burns = self.dated(MoneyKind)
        if not burns:
            return self.window
        return min(burn.start for burn in burns), max(burn.end for burn in burns)


@dataclass(frozen=True, slots=True)
class LiveAttempt:
    """One attempt that occupies capacity now, for rules that count. ``capacity``: the machine of which it has a part
    (`Offer.capacity`), with CPUs and memory of that part; empty if it has whole machines."""

    job_id: str
    user: str
    team: str | None
    project: str | None
    workload: str
    environment: str | None
    gpus: int
    accelerator: str | None
    provider: str
    money: MoneyKind
    pool: str = ""
    nodes: int = 1
    capacity_type: CapacityType | None = None
    capacity: str = ""
    milli_cpus: int = 0
    mib: int = 0

    @property
    def share(self) -> MachineShare:
        """The attempt's part of that machine."""
        gpus = ((self.accelerator, self.gpus),) if self.accelerator is not None and self.gpus else ()
        return MachineShare(self.milli_cpus, self.mib, gpus)


@dataclass(frozen=True, slots=True)
class RentedHours:
    """GPU-hours rented for jobs that are alike. ``can_use_spot``: by their files (`Job.can_use_spot`)."""

    user: str
    team: str | None
    project: str | None
    workload: str
    environment: str | None
    simulated: bool
    can_use_spot: bool = True
    on_spot: bool = False
    hours: float = 0.0

    @classmethod
    def of(cls, action: Action) -> RentedHours:
        """The kind of hours that the action's job would use; none yet."""
        job, simulated = action.job, action.placement is not None and action.placement.money is MoneyKind.SANDBOX
        return cls(action.user, job.team, job.project, job.workload.value, job.environment, simulated, job.can_use_spot)


@dataclass(frozen=True, slots=True)
class SpotShare:
    """The GPU-hours rented for eligible jobs in a time (`PolicySet.is_spot_eligible`), and those of them on spot."""

    spot: float
    total: float

    @classmethod
    def among(cls, rented: Iterable[RentedHours]) -> SpotShare:
        eligible = list(rented)
        return cls(sum(work.hours for work in eligible if work.on_spot), sum(work.hours for work in eligible))


@dataclass(frozen=True, slots=True)
class OpenAsk:
    """A pending approval request: its user, job and team, its approvers (names or shell-style patterns), its deadline
    (UTC; None for none), and its hold in a budget's period (USD)."""

    job_id: str
    user: str
    approvers: tuple[str, ...]
    until: datetime | None
    held: Money
    team: str | None = None


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """One budget in one period, from the ledger (UTC times, USD). ``over_since``: when overspending was first seen;
    only for running jobs. ``asks``: pending requests within the hold, oldest first; only if an action does not fit.
    ``behind``: the part of ``held`` of jobs that wait and were submitted after the judged one, which waits too; only
    if its start needs no more money and does not fit.
    """

    period_start: datetime
    period_end: datetime
    spent: Money
    held: Money
    over_since: datetime | None = None
    asks: tuple[OpenAsk, ...] = ()
    behind: Money = Money.ZERO


@dataclass(frozen=True, slots=True)
class UnusualSpending:
    """A running job's part in an unexplained anomaly of its team's spending: its spend above its usual (USD), since
    when it is known (UTC), and who reported it as unwanted; empty if nobody did."""

    excess: Money
    known_since: datetime
    said_by: str = ""


@dataclass(frozen=True, slots=True)
class CapacityInHand:
    """Owned and reserved capacity of an accelerator: ``gpus`` now; ``used``: the share of its GPU-hours of the last 7
    days in which it was at work, from 0 to 1; ``per_gpu_hour``: what it costs on average, used or not (USD)."""

    gpus: int
    used: float
    per_gpu_hour: Money


@dataclass(frozen=True, slots=True)
class Grant:
    """An approval: the ``rules`` of these names need no new one while a job stays within ``up_to`` (USD in total, spent
    and held, without prepaid), ``max_duration`` (None: any) and ``gpus`` (None: any).

    It counts while the rule still names ``by`` as an approver. ``facts``: the approved facts by rule. An action is
    covered only if its facts are these or no worse.

    ``standing``: number of the standing grant it comes from, valid before ``until`` (UTC). A standing grant covers all
    facts: it was given in advance.
    """

    by: str
    rules: tuple[str, ...]
    up_to: Money
    max_duration: timedelta | None = None
    gpus: int | None = None
    standing: int | None = None
    until: datetime | None = None
    facts: Mapping[str, tuple[Fact, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """All a rule may know besides the action: the time, running attempts, and the money of each budget.

    ``budgets`` maps a budget's id (as the policy set names it) to its periods touched by the action, in order.
    ``grants``: approvals that may apply to the action's job. ``unusual``: its part in an anomaly; only for running
    jobs. ``in_hand``: the recorded owned and reserved capacity, by accelerator; only if a rule needs it.
    ``spot_shares``: by rule that demands one, the share of spot so far; only if the action's job is eligible.
    """

    now: datetime
    live: tuple[LiveAttempt, ...] = ()
    budgets: Mapping[str, tuple[BudgetUse, ...]] = field(default_factory=dict)
    grants: tuple[Grant, ...] = ()
    unusual: UnusualSpending | None = None
    in_hand: Mapping[str, CapacityInHand] = field(default_factory=dict)
    spot_shares: Mapping[str, SpotShare] = field(default_factory=dict)


class Answer(StrEnum):
    """From most to least permissive; the strictest of several decides."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Source:
    """The place of a rule: ``policies/team.yaml:12``; of a name in it, with the column."""

    file: str
    line: int
    column: int = 0

    def __str__(self) -> str:
        return place(self.file, self.line, self.column)


@dataclass(frozen=True, slots=True)
class PolicyName:
    """A name or pattern in a policy file: the ``kind`` of name (``user``, ``provider``, ``capacity type``, …), its
    ``text``, its place, and the ``pattern`` that a known name has to match in full."""

    kind: str
    text: str
    source: Source
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One rule's answer: a countable code, a sentence with the figures, and the figures.

    ``rule``: the kind of rule; ``name``: the policy's name for this one. If it requires an approval: ``approvers`` may
    give it (names or shell-style patterns), the requester only if ``own_requests``, before ``expires``; ``looked_at``:
    the facts an approval covers. ``warns``: the rule only warns for now; otherwise it would deny, or ask.
    """

    answer: Answer
    rule: str
    code: str
    message: str
    source: Source
    name: str = ""
    figures: Mapping[str, str] = field(default_factory=dict)
    approvers: tuple[str, ...] = ()
    expires: timedelta | None = None
    own_requests: bool = False
    looked_at: tuple[Fact, ...] = ()
    warns: bool = False

    @property
    def objection(self) -> RuleObjection:
        """The rule's objection, for the events of a job."""
        return RuleObjection(self.rule, self.name, self.code, self.message, str(self.source))


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The verdict on a case of `policy test`. ``wrong``: the difference from the expected one; empty if none."""

    name: str
    source: Source
    expected: Answer
    answer: Answer
    verdicts: tuple[Verdict, ...]
    wrong: str = ""
