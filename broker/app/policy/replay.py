"""Replay of recorded decisions under another policy. Pure except `replay_decisions`.

Every decision keeps its inputs, so the same policy reproduces the recorded verdicts exactly. Under another policy, the
first difference changes what later decisions see: a refused job spends and occupies nothing, an allowed one does. From
then on budgets are computed from the ledger entries of the jobs that would have run. For a job that never ran, its plan
is used: its money is held, and after the expected time the expected cost is spent and the rest released. A job that
would have run on another offer is charged there for its metered time.

A submission is placed again at the prices of its time. If the first placement of the planner under the other policy is
not in the recorded plan, it is tried first. Otherwise the recorded placement and its alternatives are tried, then the
other placements of the planner.

Unknown outcomes stay as recorded. Jobs without any feasible offer have no record. Moves try only the alternatives of
the recorded plan. Running jobs are not judged again. A job that would be refused more money or time keeps its cost.
Requests count as approved, except those that were not approved then. If no rule counted running jobs, they were not
recorded; a new rule that counts them sees the jobs that hold money, with the capacity that their entries show.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from broker.app.market.market import conditions, query_for, wants_sandbox
from broker.app.policy.replayed_job import (
    ReplayBasis,
    ReplayedCourses,
    ReplayedJob,
    Window,
    counts,
    elsewhere,
    planned,
    spent_within,
    standing,
)
from broker.app.policy.replayed_job import spent as spent_in
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.core.job.placements import Placement
from broker.core.market.offers import SANDBOX, MoneyKind
from broker.core.policy.decisions import Decision, Inputs, inputs_of
from broker.core.policy.policy import Action, ActionKind, Answer, BudgetUse, CapacityInHand, Facts, RentedHours, Verdict
from broker.core.ports import BudgetSpec, PolicySet
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.budgets import budget_uses
from broker.ledger.entries import Entry, Movement
from broker.placement.planner import make_plan
from broker.reconciler.admission.admission import denials, strictest, switched_off, with_occupancy

if TYPE_CHECKING:
    from broker.store.market.holdings import WorkOnHeld


class PastPlacements:
    """Places submissions again, on the offers that were known at their time. ``longest``: seconds of the wall clock
    after which no more are placed; None: no limit. Not considered, because not recorded: doubts about prices,
    interruption rates, and what jobs of other stores used. ``placed``: the number of submissions placed; ``left``: the
    number of those for which time or recorded prices were missing."""

    def __init__(self, broker: Broker, policy: PolicySet, longest: float | None = None) -> None:
        self._broker = broker
        self._policy = policy
        self._ends = None if longest is None else time.monotonic() + longest
        self.placed = 0
        self.left = 0

    def __call__(self, action: Action, facts: Facts, at: datetime) -> Sequence[Placement]:
        """The placements that these policies allow by themselves, in the planner's order; none if the job cannot be
        placed again. ``at``: the time of the decision (UTC)."""
        job = action.job
        if action.kind is not ActionKind.LAUNCH or (job.model is not None and not job.resources):
            return ()  # the remaining work of moved jobs, and the sizes of models, were not recorded
        if self._ends is not None and time.monotonic() >= self._ends:
            self.left += 1
            return ()
        past = self._broker.store.market.offers_at(at, at, query_for(job))
        offers = [one.offer for one in past if wants_sandbox(job) or one.offer.provider != SANDBOX]
        if not offers:
            self.left += 1
            return ()
        self.placed += 1
        seen = conditions(self._broker, {offer.engine for offer in offers if offer.engine}, self._policy)
        plan = make_plan(
            job,
            with_occupancy(offers, facts.live),
            now=at,
            submitted_at=at,
            conditions=replace(seen, capacity_order=self._policy.capacity_order(job)),
            deny=denials(self._policy, replace(action, placement=None, hold=None), facts),
        )
        return plan.placements


@dataclass(frozen=True, slots=True)
class ReplayedDecision:
    """One decision as recorded and as replayed.

    ``answer``: None if the decision would not have been made, because its job was refused before. ``cost_before``: the
    cost of the job in USD of ``money``, only for its launch; ``cost_after``: in USD of ``money_after``, known by
    ``basis``. ``late_before`` and ``late_after``: whether the job was expected to miss its deadline.
    """

    decision: Decision
    answer: Answer | None
    verdicts: tuple[Verdict, ...]
    money: MoneyKind
    cost_before: Money
    cost_after: Money
    late_before: bool
    late_after: bool
    pool: str | None
    money_after: MoneyKind
    basis: ReplayBasis = ReplayBasis.RECORD

    @property
    def same(self) -> bool:
        """Whether nothing would have been different. The pool of a refused placement does not matter."""
        if self.answer is not self.decision.answer or self.cost_before != self.cost_after:
            return False
        return self.answer is Answer.DENY or self.pool == self.decision.pool


@dataclass(frozen=True, slots=True)
class DecisionTotals:
    """The decisions of a period, and what the jobs cost: USD by kind of money. ``late``: expected to miss the
    deadline."""

    allowed: int
    asked: int
    denied: int
    late: int
    cost: Mapping[MoneyKind, Money]


@dataclass(frozen=True, slots=True)
class PolicyReplay:
    """``unknown``: the number of decisions without recorded inputs. ``not_placed``: submissions judged only by the
    recorded alternatives, because time or recorded prices were missing."""

    outcomes: tuple[ReplayedDecision, ...]
    unknown: int
    not_placed: int = 0

    @property
    def differences(self) -> tuple[ReplayedDecision, ...]:
        return tuple(one for one in self.outcomes if not one.same)

    @property
    def warned(self) -> tuple[ReplayedDecision, ...]:
        """The decisions that a rule warned about."""
        return tuple(one for one in self.outcomes if any(verdict.warns for verdict in one.verdicts))

    @property
    def before(self) -> DecisionTotals:
        return _totals((one.decision.answer, one.late_before, one.money, one.cost_before) for one in self.outcomes)

    @property
    def after(self) -> DecisionTotals:
        return _totals((one.answer, one.late_after, one.money_after, one.cost_after) for one in self.outcomes)


def _totals(rows: Iterable[tuple[Answer | None, bool, MoneyKind, Money]]) -> DecisionTotals:
    cost: dict[MoneyKind, Money] = {}
    answers: dict[Answer | None, int] = defaultdict(int)
    late = 0
    for answer, was_late, kind, amount in rows:
        answers[answer] += 1
        late += was_late
        if amount:
            cost[kind] = cost.get(kind, Money.ZERO) + amount
    return DecisionTotals(answers[Answer.ALLOW], answers[Answer.ASK], answers[Answer.DENY], late, cost)


def replay_decisions(
    broker: Broker, policy: PolicySet, start: datetime, end: datetime, longest: float | None = None
) -> PolicyReplay:
    """The decisions recorded from ``start`` to ``end`` (UTC, half-open), judged by another policy. Changes nothing.
    ``longest``: seconds of the wall clock after which submissions are no
    longer placed again (None: no limit). Raises `InvalidInput` for a record that was altered."""
    anew = PastPlacements(broker, policy, longest)
    with broker.store.reading() as look:
        decisions = [one for one in reversed(look.decisions(since=start)) if one.at < end]
        entries = look.entries()

    def rented(since: datetime, until: datetime) -> Iterable[RentedHours]:
        with broker.store.reading() as look:
            return look.rented_hours(since, until)

    try:
        found = replay(decisions, entries, policy, anew, _HeldThen(broker, start), rented)
        return replace(found, not_placed=anew.left)
    except ValueError as error:
        raise InvalidInput(str(error), where="the store") from error


class _HeldThen:
    """The capacity that was held at times from ``start`` on (UTC). Its use is read once, at the first call."""

    def __init__(self, broker: Broker, start: datetime) -> None:
        self._broker, self._start = broker, start
        self._work: WorkOnHeld | None = None

    def __call__(self, at: datetime) -> Mapping[str, CapacityInHand]:
        with self._broker.store.reading() as look:
            if self._work is None:
                self._work = look.work_on_held(self._start)
            return look.in_hand(at, self._work)


InHandAt = Callable[[datetime], Mapping[str, CapacityInHand]]
"""The capacity that was held at a time (UTC), by accelerator."""


class RentedUntil(Protocol):
    def __call__(self, since: datetime, until: datetime) -> Iterable[RentedHours]:
        """The GPU-hours that were rented from ``since`` to ``until`` (UTC), as recorded."""


Anew = Callable[[Action, Facts, datetime], Sequence[Placement]]
"""Where an action could have been placed at a time (UTC), in order."""


def replay(
    decisions: Sequence[Decision],
    entries: Sequence[Entry],
    policy: PolicySet,
    anew: Anew = lambda action, facts, at: (),
    in_hand: InHandAt = lambda at: {},
    rented: RentedUntil | None = None,
) -> PolicyReplay:
    """Judge these decisions, oldest first, by another policy. ``entries``: the whole ledger.

    Raises ValueError for a decision whose inputs do not match its hash.
    """
    again = _Replay(policy, entries, anew, in_hand, rented)
    outcomes, unknown = [], 0
    for decision in decisions:
        inputs = inputs_of(decision)
        if inputs is None:
            unknown += 1
        else:
            outcomes.append(again.judge(decision, inputs))
    return PolicyReplay(tuple(map(again.finished, outcomes)), unknown)


@dataclass
class _Replay:
    policy: PolicySet
    entries: Sequence[Entry]
    anew: Anew
    in_hand: InHandAt
    rented: RentedUntil | None
    diverged: bool = False
    gone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        recorded: dict[str, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            recorded[entry.tags.job_id].append(entry)
        # Includes jobs that were admitted before the replayed period.
        self.recorded = {job: ReplayedJob(sorted(mine, key=attrgetter("at"))) for job, mine in recorded.items()}
        self.courses = ReplayedCourses(self.recorded)

    def judge(self, decision: Decision, inputs: Inputs) -> ReplayedDecision:
        action, first = inputs.action, inputs.action.kind is ActionKind.LAUNCH
        key = decision.job_id or f"refused at {decision.at.isoformat()} {decision.job_name}"
        cost = spent_in(self.recorded[key].entries) if first and key in self.recorded else Money.ZERO
        kind = action.placement.money if action.placement else MoneyKind.CASH
        late = decision.answer is not Answer.DENY and _late(action, decision.at)
        if key in self.gone and not first:
            return ReplayedDecision(decision, None, (), kind, Money.ZERO, Money.ZERO, late, False, None, kind)
        if self.policy.version != decision.policy_version:
            self.diverged = True
        facts = self._facts(inputs, decision, key)
        if self.policy.needs_holdings and not facts.in_hand:  # no rule needed it then
            facts = replace(facts, in_hand=self.in_hand(decision.at))
        if self.rented is not None:
            hours = partial(self.rented, until=decision.at)
            facts = replace(facts, spot_shares=self.policy.spot_shares(RentedHours.of(action), decision.at, hours))
        chosen, verdicts = self._choose(decision, inputs, facts)
        answer = strictest(verdicts)
        after = self._follow(decision, inputs.action, chosen, answer, key)
        if not first:
            after = Money.ZERO
        late_after = answer is not Answer.DENY and _late(chosen, decision.at)
        pool = chosen.placement.offer.pool if chosen.placement else None
        kind_after = chosen.placement.money if chosen.placement else kind
        course = self.courses.get(key)
        basis = course.basis if first and course is not None else ReplayBasis.RECORD
        found = ReplayedDecision(
            decision, answer, verdicts, kind, cost, after, late, late_after, pool, kind_after, basis
        )
        self.diverged = self.diverged or not found.same
        return found

    def finished(self, found: ReplayedDecision) -> ReplayedDecision:
        """The outcome with the final cost of its job, which is lower if it was stopped later."""
        course = self.courses.get(found.decision.job_id or "")
        if found.decision.action is not ActionKind.LAUNCH or course is None or found.answer is Answer.DENY:
            return found
        if course.since is None:
            return found
        return replace(found, cost_after=spent_in(course.until(course.since)))

    def _choose(self, decision: Decision, inputs: Inputs, facts: Facts) -> tuple[Action, tuple[Verdict, ...]]:
        """The placement that the policies allow, preferring one without a request for approval, with the verdicts on
        it; the recorded placement if all are refused."""
        action = inputs.action
        tried = [action.placement, *inputs.others] if action.kind is not ActionKind.CONTINUE else [action.placement]
        if self.policy.version != decision.policy_version:
            known = {one.offer.pool for one in tried if one is not None}
            new = self.anew(action, facts, decision.at)
            more = [one for one in new if one.offer.pool not in known]
            tried = [*more, *tried] if new and new[0].offer.pool not in known else [*tried, *more]
        asked: tuple[Action, tuple[Verdict, ...]] | None = None
        for placement in tried:
            single = replace(action, placement=placement, hold=None)
            if len(tried) > 1 and strictest(self._said(single, facts)) is Answer.DENY:
                continue
            chosen = replace(action, placement=placement)
            verdicts = self._said(chosen, facts)
            answer = strictest(verdicts)
            if answer is Answer.ALLOW or (answer is Answer.DENY and asked is None):
                return chosen, verdicts
            asked = asked or (chosen, verdicts)
        return asked or (action, self._said(action, facts))

    def _said(self, action: Action, facts: Facts) -> tuple[Verdict, ...]:
        """The verdicts of the rules, and of the settings of the policy that a plan applies before them."""
        off = switched_off(self.policy, action)
        return (*self.policy.judge(action, facts), *([off] if off else []))

    def _follow(self, decision: Decision, was: Action, chosen: Action, answer: Answer, key: str) -> Money:
        """Update the course of the job; returns its cost."""
        denied, was_denied = answer is Answer.DENY, decision.answer is Answer.DENY
        if denied and not was_denied:
            if decision.action is ActionKind.LAUNCH:
                self.courses.drop(key)
                self.gone.add(key)
                return Money.ZERO
            if self.courses.get(key) is not None and decision.action is not ActionKind.EXTEND:
                self.courses.stop(key, decision.at)
                self.gone.add(key)
        moved = chosen.placement is not None and chosen.placement.offer.pool != decision.pool
        never_ran = key not in self.recorded or not spent_in(self.recorded[key].entries)
        # A request that was not approved then is refused again; all others count as approved.
        newly = was_denied or (decision.answer is Answer.ASK and never_ran and answer is Answer.ALLOW)
        launched = decision.action is ActionKind.LAUNCH and not denied
        if launched and chosen.placement and newly:
            self.courses.put(key, planned(key, chosen, chosen.placement, decision.at))
        elif launched and chosen.placement and moved:
            entries = self.recorded[key].entries if key in self.recorded else ()
            self.courses.put(key, elsewhere(key, entries, was.placement, chosen, chosen.placement, decision.at))
        course = self.courses.get(key)
        return spent_in(course.entries) if course and not denied else Money.ZERO

    def _facts(self, inputs: Inputs, decision: Decision, key: str) -> Facts:
        """The recorded facts until the first difference; after it the replayed ones."""
        if not self.diverged:
            return inputs.facts
        now, action = inputs.facts.now, inputs.action
        live = [one for one in inputs.facts.live if one.job_id not in self.gone]
        self.courses.close(now)
        self.courses.reopen(key)  # the job of this decision may not have ended
        under_way = list(self.courses.under_way(now))
        if not inputs.live_kept:
            live = [one for job, course in under_way if job != key and (one := course.holding(job, now))]
        on_record = {one.job_id for one in live}
        for job, course in under_way:
            if course.occupies and job not in on_record and course.occupies[0][0] <= now < course.occupies[0][1]:
                live.append(course.occupies[1])
        window = action.window or (now, now)
        uses = {
            budget.id: self._use(budget, window, now, key, decision)
            for budget in self.policy.budgets(action.job, action.user)
        }
        return Facts(now, tuple(live), uses, inputs.facts.grants)

    def _use(
        self, budget: BudgetSpec, window: Window, now: datetime, key: str, decision: Decision
    ) -> tuple[BudgetUse, ...]:
        """The state of a budget, from the entries of the replayed jobs."""
        spends: list[Entry] = []
        holds: list[Burn] = []
        for job, course in self.courses.under_way(now):
            if job != key:
                spent_by, held_by = self.courses.posted(job, budget, now)
            elif decision.action is ActionKind.LAUNCH:
                continue
            else:  # without a top-up that this decision caused
                mine = [e for e in course.until(now) if counts(budget, e)]
                spent_by, held_by = standing([e for e in mine if e.movement is not Movement.TOP_UP or e.at < now])
                held_by = () if course.since is not None and course.since <= now else held_by
            spends += spent_by
            holds += held_by

        def spent(start: datetime, end: datetime) -> Money:
            return sum((spent_within(e, start, end) for e in spends), self.courses.spent(budget, start, end))

        return budget_uses(budget, window, now, spent, holds)


def _late(action: Action, at: datetime) -> bool:
    deadline = action.job.deadline_at(action.submitted_at or at)
    finish = action.placement.finish if action.placement else None
    return deadline is not None and finish is not None and finish > deadline
