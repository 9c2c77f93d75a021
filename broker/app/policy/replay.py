"""Recorded decisions, judged again by other policies. Pure except `replay_decisions`.

Every decision keeps its inputs, so the same policies say exactly the same again. Other policies see the jobs and the
money that the ledger had at the time, without the jobs that they refuse. They choose among the placements of the
recorded plan.

Unknown outcomes stay as recorded. Jobs without any feasible offer have no record. A job that was refused, or placed
elsewhere, costs what its plan expected; it changes no later budget. Requests count as they were answered. If no rule
counted running jobs, they were not recorded; a new rule that counts them sees the jobs that hold money.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.core.market.offers import MoneyKind
from broker.core.policy.decisions import Decision, Inputs, inputs_of
from broker.core.policy.policy import (
    Action,
    ActionKind,
    Answer,
    CapacityInHand,
    Facts,
    LiveAttempt,
    RentedHours,
    Verdict,
)
from broker.core.ports import BudgetSpec, PolicySet
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.budgets import budget_uses, in_scope, share_within
from broker.ledger.entries import Account, Entry, Movement, Tags, held_burns
from broker.reconciler.admission.admission import reference_price_denial, strictest

if TYPE_CHECKING:
    from broker.store.market.holdings import HeldWork


@dataclass(frozen=True, slots=True)
class ReplayedDecision:
    """One decision as recorded and as replayed.

    ``answer``: None if the decision would not have been made, because its job was refused before. ``cost_before``: the
    cost of the job in USD of ``money``, only for its launch; ``cost_after``: in USD of ``money_after``.
    """

    decision: Decision
    answer: Answer | None
    verdicts: tuple[Verdict, ...]
    money: MoneyKind
    cost_before: Money
    cost_after: Money
    pool: str | None
    money_after: MoneyKind

    @property
    def same(self) -> bool:
        """Whether the replayed decision equals the recorded one. The pool of a refused placement does not matter."""
        if self.answer is not self.decision.answer or self.cost_before != self.cost_after:
            return False
        return self.answer is Answer.DENY or self.pool == self.decision.pool


@dataclass(frozen=True, slots=True)
class DecisionTotals:
    """The decisions of a period, and what the jobs cost: USD by kind of money."""

    allowed: int
    asked: int
    denied: int
    cost: Mapping[MoneyKind, Money]


@dataclass(frozen=True, slots=True)
class PolicyReplay:
    """``unknown``: the number of decisions without recorded inputs."""

    outcomes: tuple[ReplayedDecision, ...]
    unknown: int

    @property
    def differences(self) -> tuple[ReplayedDecision, ...]:
        return tuple(outcome for outcome in self.outcomes if not outcome.same)

    @property
    def warned(self) -> tuple[ReplayedDecision, ...]:
        return tuple(outcome for outcome in self.outcomes if any(verdict.warns for verdict in outcome.verdicts))

    @property
    def before(self) -> DecisionTotals:
        return _totals((outcome.decision.answer, outcome.money, outcome.cost_before) for outcome in self.outcomes)

    @property
    def after(self) -> DecisionTotals:
        return _totals((outcome.answer, outcome.money_after, outcome.cost_after) for outcome in self.outcomes)


def _totals(rows: Iterable[tuple[Answer | None, MoneyKind, Money]]) -> DecisionTotals:
    cost: dict[MoneyKind, Money] = {}
    answers: dict[Answer | None, int] = defaultdict(int)
    for answer, kind, amount in rows:
        answers[answer] += 1
        if amount:
            cost[kind] = cost.get(kind, Money.ZERO) + amount
    return DecisionTotals(answers[Answer.ALLOW], answers[Answer.ASK], answers[Answer.DENY], cost)


def replay_decisions(broker: Broker, policy: PolicySet, start: datetime, end: datetime) -> PolicyReplay:
    """The decisions recorded from ``start`` to ``end`` (UTC, half-open), judged by another policy. Changes nothing.
    Raises `InvalidInput` for a record that was altered."""
    with broker.store.reading() as reader:
        decisions = [decision for decision in reversed(reader.decisions(since=start)) if decision.at < end]
        entries = reader.entries()

    def rented_hours(since: datetime, until: datetime) -> Iterable[RentedHours]:
        with broker.store.reading() as reader:
            return reader.rented_hours(since, until)

    try:
        return replay(decisions, entries, policy, _PastCapacity(broker, start), rented_hours)
    except ValueError as error:
        raise InvalidInput(str(error), where="the store") from error


class _PastCapacity:
    """The capacity that was held at times from ``start`` on (UTC). Its use is read once, at the first call."""

    def __init__(self, broker: Broker, start: datetime) -> None:
        self._broker, self._start = broker, start
        self._work: HeldWork | None = None

    def __call__(self, at: datetime) -> Mapping[str, CapacityInHand]:
        with self._broker.store.reading() as reader:
            if self._work is None:
                self._work = reader.work_on_held(self._start)
            return reader.in_hand(at, self._work)


InHandAt = Callable[[datetime], Mapping[str, CapacityInHand]]
"""The capacity that was held at a time (UTC), by accelerator."""


class RentedUntil(Protocol):
    def __call__(self, since: datetime, until: datetime) -> Iterable[RentedHours]:
        """The GPU-hours that were rented from ``since`` to ``until`` (UTC), as recorded."""


def replay(
    decisions: Sequence[Decision],
    entries: Iterable[Entry],
    policy: PolicySet,
    in_hand: InHandAt = lambda at: {},
    rented_hours: RentedUntil | None = None,
) -> PolicyReplay:
    """Judge these decisions, oldest first, by another policy. ``entries``: the whole ledger.

    Raises ValueError for a decision whose inputs do not match its hash.
    """
    replayer = _Replayer(policy, _PastLedger(entries), in_hand, rented_hours)
    outcomes, unknown_count = [], 0
    for decision in decisions:
        inputs = inputs_of(decision)
        if inputs is None:
            unknown_count += 1
        else:
            outcomes.append(replayer.judge(decision, inputs))
    return PolicyReplay(tuple(outcomes), unknown_count)


@dataclass
class _Replayer:
    policy: PolicySet
    ledger: _PastLedger
    in_hand: InHandAt
    rented: RentedUntil | None

    def judge(self, decision: Decision, inputs: Inputs) -> ReplayedDecision:
        action, is_launch = inputs.action, inputs.action.kind is ActionKind.LAUNCH
        key = decision.job_id or ""
        cost = self.ledger.cost(key) if is_launch else Money.ZERO
        kind = action.placement.money if action.placement else MoneyKind.CASH
        if key in self.ledger.refused and not is_launch:
            return ReplayedDecision(decision, None, (), kind, Money.ZERO, Money.ZERO, None, kind)
        facts = inputs.facts
        if self.policy.version != decision.policy_version:
            facts = self._facts(inputs, key)
        if self.policy.needs_holdings and not facts.in_hand:  # no rule needed it then
            facts = replace(facts, in_hand=self.in_hand(decision.at))
        if self.rented is not None:
            hours = partial(self.rented, until=decision.at)
            facts = replace(facts, spot_shares=self.policy.spot_shares(RentedHours.of(action), decision.at, hours))
        chosen_action, verdicts = self._choose(inputs, facts)
        answer = strictest(verdicts)
        if answer is Answer.DENY is not decision.answer and action.kind is not ActionKind.EXTEND:
            self.ledger.refused.add(key)
        pool = chosen_action.placement.offer.pool if chosen_action.placement else None
        cost_after = Money.ZERO
        if is_launch and answer is not Answer.DENY and chosen_action.placement is not None:
            as_recorded = decision.answer is not Answer.DENY and pool == decision.pool
            cost_after = cost if as_recorded else chosen_action.placement.expected_cost
        kind_after = chosen_action.placement.money if chosen_action.placement else kind
        return ReplayedDecision(decision, answer, verdicts, kind, cost, cost_after, pool, kind_after)

    def _choose(self, inputs: Inputs, facts: Facts) -> tuple[Action, tuple[Verdict, ...]]:
        """The placement that the policies allow, preferring one without a request for approval, with the verdicts on
        it; the recorded placement if all are refused."""
        action = inputs.action
        candidates = (
            [action.placement, *inputs.others] if action.kind is not ActionKind.CONTINUE else [action.placement]
        )
        needs_approval: tuple[Action, tuple[Verdict, ...]] | None = None
        for placement in candidates:
            trial_action = replace(action, placement=placement, hold=None)
            if len(candidates) > 1 and strictest(self._verdicts(trial_action, facts)) is Answer.DENY:
                continue
            chosen_action = replace(action, placement=placement)
            verdicts = self._verdicts(chosen_action, facts)
            answer = strictest(verdicts)
            if answer is Answer.ALLOW or (answer is Answer.DENY and needs_approval is None):
                return chosen_action, verdicts
            needs_approval = needs_approval or (chosen_action, verdicts)
        return needs_approval or (action, self._verdicts(action, facts))

    def _verdicts(self, action: Action, facts: Facts) -> tuple[Verdict, ...]:
        """The verdicts of the rules, and of the settings of the policy that a plan applies before them."""
        off = reference_price_denial(self.policy, action)
        return (*self.policy.judge(action, facts), *([off] if off else []))

    def _facts(self, inputs: Inputs, job_id: str) -> Facts:
        """The facts at the time of the decision, for policies that were not in force then."""
        now, action, ledger = inputs.facts.now, inputs.action, self.ledger
        ledger.advance(now)
        live = inputs.facts.live if inputs.live_kept else ledger.live(except_for=job_id)
        live = tuple(attempt for attempt in live if attempt.job_id not in ledger.refused)
        window, launches = action.window or (now, now), action.kind is ActionKind.LAUNCH
        uses = {
            budget.id: budget_uses(
                budget,
                window,
                now,
                partial(ledger.spent, budget, job_id if launches else ""),
                ledger.holds(budget, job_id, now, launches=launches),
            )
            for budget in self.policy.budgets(action.job, action.user)
        }
        return Facts(now, live, uses, inputs.facts.grants)


@dataclass(slots=True)
class _OpenHold:
    """The held money of a job: its entries, and what is left of them by kind."""

    entries: list[Entry] = field(default_factory=list)
    burns: Mapping[MoneyKind, Burn] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.burns = held_burns(self.entries)

    @property
    def amount(self) -> Money:
        return sum((entry.amount for entry in self.entries), Money.ZERO)


class _PastLedger:
    """The ledger as it was at a time that only advances. ``refused``: the jobs whose later entries do not count."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.refused: set[str] = set()
        self._coming = sorted(entries, key=attrgetter("at"), reverse=True)
        self._spent_by: dict[str, list[Entry]] = defaultdict(list)
        self._costs: dict[str, Money] = defaultdict(lambda: Money.ZERO)
        self._held: dict[str, _OpenHold] = {}
        self._sums: dict[tuple[BudgetSpec, datetime, datetime], Money] = {}
        for entry in self._coming:
            if entry.account is Account.SPENT:
                self._costs[entry.tags.job_id] += entry.amount

    def cost(self, job_id: str) -> Money:
        """What the job cost in the end (USD)."""
        return self._costs[job_id]

    def advance(self, now: datetime) -> None:
        """Add the entries that were posted by ``now`` (UTC)."""
        while self._coming and self._coming[-1].at <= now:
            entry = self._coming.pop()
            job_id = entry.tags.job_id
            if job_id in self.refused:
                self._held.pop(job_id, None)
            elif entry.account is Account.HELD:
                held = self._held.setdefault(job_id, _OpenHold())
                held.add(entry)
                if not held.amount:
                    del self._held[job_id]
            elif entry.account is Account.SPENT:
                self._spent_by[job_id].append(entry)
                for budget, start, end in self._sums:
                    self._sums[budget, start, end] += _share(budget, entry, start, end)

    def spent(self, budget: BudgetSpec, except_for: str, start: datetime, end: datetime) -> Money:
        """What jobs other than this one spent under the budget in the half-open time (USD)."""
        asked = budget, start, end
        if asked not in self._sums:
            every = (entry for entries in self._spent_by.values() for entry in entries)
            self._sums[asked] = sum((_share(budget, entry, start, end) for entry in every), Money.ZERO)
        own = (_share(budget, entry, start, end) for entry in self._spent_by.get(except_for, ()))
        return self._sums[asked] - sum(own, Money.ZERO)

    def holds(self, budget: BudgetSpec, job_id: str, now: datetime, *, launches: bool) -> Iterator[Burn]:
        """The holds under the budget; of the job itself none if it launches, else those before the decision."""
        for other, held in self._held.items():
            burns = held.burns
            if other == job_id:
                if launches:
                    continue
                burns = held_burns(e for e in held.entries if e.movement is not Movement.TOP_UP or e.at < now)
            if other not in self.refused and _counts(budget, held.entries[0].tags):
                yield from (burn for kind, burn in burns.items() if kind in budget.counts)

    def live(self, except_for: str) -> Iterator[LiveAttempt]:
        """The capacity of the jobs that hold money, as far as their entries name it."""
        for job_id, held in self._held.items():
            placed = next((entry for entry in held.entries if entry.tags.provider), None)
            if placed is not None and job_id != except_for:
                tags = placed.tags
                yield LiveAttempt(
                    job_id, tags.user, tags.team, tags.project, tags.workload or "", tags.environment, tags.gpus,
                    tags.accelerator, tags.provider or "", placed.money, capacity_type=tags.capacity_type,
                )  # fmt: skip


def _counts(budget: BudgetSpec, tags: Tags) -> bool:
    return in_scope(
        budget,
        user=tags.user,
        team=tags.team,
        project=tags.project,
        workload=tags.workload,
        environment=tags.environment,
    )


def _share(budget: BudgetSpec, entry: Entry, start: datetime, end: datetime) -> Money:
    """The part of an entry of spend (USD) that counts under the budget in the half-open time (UTC)."""
    if entry.money not in budget.counts or not _counts(budget, entry.tags):
        return Money.ZERO
    if start <= entry.covers_from and entry.covers_to <= end and entry.covers_from < end:
        return entry.amount
    return share_within(entry.amount, (entry.covers_from, entry.covers_to), (start, end))
