"""What a rule sees and what it answers: the values of the gate that everything that costs money passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from broker.core.errors import place
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.job.reasons import RuleObjection
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.policy.facts import Fact
from broker.core.values.burns import Burn
from broker.core.values.money import Money


class ActionKind(StrEnum):
    """What is about to be done. All pass the same gate."""

    LAUNCH = "launch"
    RE_PLACE = "re_place"
    EXTEND = "extend"
    RESERVE = "reserve"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True)
class Usage:
    """How busy the accelerators of an attempt were at a moment (UTC), in percent: the busiest one of all its nodes."""

    at: datetime
    percent: float


@dataclass(frozen=True, slots=True)
class IdleLimit:
    """What of idleness a rule stops, as a node can see it alone: every accelerator less than ``below`` percent busy for
    so long. ``told``: how the sentence about it ends: for how long, which limit, where the rule stands."""

    below: float
    stretch: timedelta
    told: str


@dataclass(frozen=True, slots=True)
class Action:
    """Something that may cost money, about to be done for ``user``.

    ``placement`` is the placement under judgement (offer-level rules look at it). ``hold`` is the money asked for by
    kind, known when the whole submission is judged and None while single placements are; ``window`` is the time for
    which the job may run. ``burns``: by kind, all that the job would hold if this is allowed, with the time that it is
    judged for; ``own``: what it holds of that already, with the time that this was judged for. ``elapsed`` and
    ``spent`` tell how far a running job has come (0 at launch), ``held`` what it holds beside what is asked for now.
    ``submitted_at``: None for a submission itself. ``attempts``: those made before. ``usage``: what the accelerators of
    what runs were seen doing, oldest first; empty when nobody looked. ``in_place``: it is money alone, for what runs to
    go on where it is, within the limits that its owner has set: no start, no move. ``by_owner``: of an extension, that
    its owner asks for it, and starts nothing with it; otherwise the broker needs it for what was admitted.
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

    def dated(self, kinds: Iterable[MoneyKind]) -> list[Burn]:
        """All that the job would hold of these kinds, with its dates. What is asked for without dates, as it was before
        holds burned at a rate, is spread evenly over the window."""
        if self.burns or not self.hold or self.window is None:
            return [self.burns[kind] for kind in kinds if kind in self.burns]
        return [Burn.evenly(self.hold[kind], self.window) for kind in kinds if kind in self.hold]

    @property
    def covers(self) -> tuple[datetime, datetime] | None:
        """The time that its money is for (UTC); None where no money is asked for or dated."""
        dated = self.dated(MoneyKind)
        if not dated:
            return self.window
        return min(burn.start for burn in dated), max(burn.end for burn in dated)


@dataclass(frozen=True, slots=True)
class LiveAttempt:
    """One attempt that occupies capacity now, for rules that count."""

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


@dataclass(frozen=True, slots=True)
class OpenAsk:
    """A request for approval that nobody has decided: whose it is and for which job, who may decide it (names or
    shell-style patterns), until when (UTC; None: whenever), and how much of a budget's period is held for it (USD)."""

    job_id: str
    user: str
    approvers: tuple[str, ...]
    until: datetime | None
    held: Money


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """One budget's state in one of its periods, as the ledger has it now (UTC times, USD). ``over_since``: when it was
    first seen that more was spent than it grants; told only where what runs is judged. ``asks``: of what is held, what
    waits for somebody's answer, oldest first; told only where there is no room for an action."""

    period_start: datetime
    period_end: datetime
    spent: Money
    held: Money
    over_since: datetime | None = None
    asks: tuple[OpenAsk, ...] = ()


@dataclass(frozen=True, slots=True)
class Grant:
    """What somebody approved: that the ``rules`` of these names are not asked again while a job comes to no more than
    ``up_to`` (USD in all, spent and held; what was paid before does not count), runs for no longer than
    ``max_duration`` (None: however long) and on no more than ``gpus`` (None: however many).

    ``facts``: what else was approved, by rule: the facts that it looked at. None for an approval of before they were
    kept. An action is covered only where its facts are these or no worse.

    ``standing``: the number of the standing grant that it comes from; such a one is good before ``until`` (UTC) and
    only while the rule still lets ``by`` approve. It covers whatever facts a rule looks at: it was made ahead of them.
    """

    by: str
    rules: tuple[str, ...]
    up_to: Money
    max_duration: timedelta | None = None
    gpus: int | None = None
    standing: int | None = None
    until: datetime | None = None
    facts: Mapping[str, tuple[Fact, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All a rule may know beside the action: the time, who occupies what, and the money of each budget.

    ``budgets`` maps a budget's id (as the policy set names it) to its periods touched by the action, in order.
    ``grants``: what was approved for the job of the action, or for its like.
    """

    now: datetime
    live: tuple[LiveAttempt, ...] = ()
    budgets: Mapping[str, tuple[BudgetUse, ...]] = field(default_factory=dict)
    grants: tuple[Grant, ...] = ()


class Answer(StrEnum):
    """From most to least permissive; the strictest of several wins."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a rule stands: ``policies/team.yaml:12``; and of a name in it the column, too."""

    file: str
    line: int
    column: int = 0

    def __str__(self) -> str:
        return place(self.file, self.line, self.column)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One rule's answer: a countable code, a sentence for people with the figures in it, and the figures.

    ``rule``: the kind of rule; ``name``: the policy's name for this one. Of an ask: ``approvers`` could grant it (names
    or shell-style patterns), who asks only if ``own_requests``, and it ends after ``expires``; ``looked_at``: the facts
    that a yes covers.
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

    @property
    def objection(self) -> RuleObjection:
        """What the rule has against it, for the events of a job."""
        return RuleObjection(self.rule, self.name, self.code, self.message, str(self.source))


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What policies said to a case of `policy test`. ``wrong``: why that is not what was expected; empty if it is."""

    name: str
    source: Source
    expected: Answer
    answer: Answer
    verdicts: tuple[Verdict, ...]
    wrong: str = ""
