"""Giving a job its next attempt: fresh offers, a plan, the gate, then money and intent in one transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from broker.core import events as ev
from broker.core.decisions import Decision
from broker.core.events import Cause, EventBody
from broker.core.jobs import Job
from broker.core.lifecycle import JobView
from broker.core.money import Money
from broker.core.offers import MoneyKind, Offer
from broker.core.placements import Placement, Plan
from broker.core.policy import Action, ActionKind, Answer, BudgetUse, Facts
from broker.core.ports import PolicySet
from broker.core.reasons import Reason, count_reasons
from broker.launch.admission import STOP_GRACE, Admission, denials, re_place, with_occupancy
from broker.launch.journal import Journal, Reading
from broker.launch.progress import billed_time, remaining_work
from broker.launch.settlement import tags_of
from broker.ledger.budgets import budget_uses
from broker.ledger.entries import Balance, Entry, Movement, Tags, move
from broker.ledger.holds import ledger_rate, paid_until
from broker.placement.conditions import Conditions
from broker.placement.planner import make_plan

# How long a pool in which a launch failed is left alone.
_COOL_DOWN = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Market:
    """What a plan is made from: the offers that could serve the job, and the conditions of plans here and now."""

    offers: Sequence[Offer]
    conditions: Conditions
    left_out: Mapping[Reason, int]


MarketFor = Callable[[Job], Market]


def attempt_key(job_id: str, number: int) -> str:
    """The key of an attempt: what engines are idempotent on."""
    return f"{job_id}-{number}"


def facts_from(look: Reading, policy: PolicySet, action: Action, now: datetime) -> Facts:
    """What the rules may know: who occupies what, and each budget in the periods the action's money falls into."""
    window = action.window or (now, now)
    budgets: dict[str, tuple[BudgetUse, ...]] = {}
    for budget in policy.budgets(action.job, action.user):
        spent = partial(look.spent, budget)
        budgets[budget.id] = budget_uses(budget, window, now, spent, look.open_holds(budget))
    return Facts(now=now, live=tuple(look.live_attempts()), budgets=budgets)


def hold_entries(
    tags: Tags, money: Mapping[MoneyKind, Money], movement: Movement, number: int, window: tuple[datetime, datetime]
) -> list[Entry]:
    """The entries that set money aside. ``number`` makes the movement's id unique within the job."""
    return [
        entry
        for kind, amount in money.items()
        for entry in move(
            movement,
            amount,
            movement_id=f"{tags.job_id}/{movement}/{number}/{kind}",
            money=kind,
            at=window[0],
            covers=window,
            tags=tags,
        )
    ]


def decision_of(
    action: ActionKind, job: Job, user: str, admission: Admission, plan: Plan, policy: PolicySet, facts: Facts
) -> Decision:
    """The record of one passage through the gate."""
    p = admission.placement
    seen = "\n".join(
        [job.model_dump_json(), repr(p), repr(sorted(admission.money.items())), repr(facts), policy.version]
    )
    return Decision(
        at=plan.made_at,
        action=action,
        user=user,
        job_name=job.name,
        answer=admission.answer,
        policy_version=policy.version,
        facts_hash=hashlib.sha256(seen.encode()).hexdigest(),
        pool=p.offer.pool,
        verdicts=admission.verdicts,
        seen={
            "offers_seen": plan.offers_seen,
            "rejections": {str(reason): count for reason, count in count_reasons(plan.rejections).items()},
            "expected_cost": p.expected_cost.as_json(),
            "money": {str(kind): amount.as_json() for kind, amount in admission.money.items()},
        },
    )


class Placing:
    """The reconciler's placer."""

    def __init__(
        self, journal: Journal, market: MarketFor, policy: Callable[[], PolicySet], now: Callable[[], datetime]
    ) -> None:
        self._journal = journal
        self._market = market
        self._policy = policy
        self._now = now

    def __call__(self, view: JobView) -> bool:
        """Request the job's next attempt, pause it, or note why it must wait. Whether the job's stream changed.

        Raises `RetryLater` when offers cannot be had for the moment, `InvalidInput` when no policy can be read.
        """
        market, policy, now = self._market(view.job), self._policy(), self._now()
        plan, at_risk = self._plan(view, market, policy, now)
        if not plan.placements:
            counts = {str(reason): count for reason, count in count_reasons(plan.rejections).items()}
            return self._note(view, ev.NothingFeasible(reasons=counts), now)
        billed = billed_time(view, now)
        with self._journal.writing() as tx:
            current = tx.job(view.id)
            if current is None or current.seq != view.seq:
                return True
            balance = tx.balance(view.id)

            def facts_for(action: Action) -> Facts:
                return facts_from(tx, policy, action, now)

            found = re_place(view, plan, policy, facts_for, balance, billed=billed, now=now)
            action = Action(ActionKind.RE_PLACE, view.job, view.user, placement=found.placement, window=found.window)
            record = decision_of(action.kind, view.job, view.user, found, plan, policy, facts_for(action))
            number = len(view.attempts) + 1
            refusal = _refusal(found) or _too_little(found, balance, now)
            if refusal is not None:
                body, changed = refusal, True
                if isinstance(body, ev.NothingFeasible):
                    changed = body.denied != view.waiting_because
                if changed:
                    tx.record(replace(record, job_id=view.id))
                    tx.append(view.id, [(None, body)], now)
                return changed
            tx.record(replace(record, job_id=view.id, attempt=number))
            tx.post(hold_entries(tags_of(view), found.money, Movement.TOP_UP, view.seq, found.window))
            items: list[tuple[int | None, EventBody]] = [(None, body) for body in at_risk]
            items.append((number, launch_request(view.id, number, found.placement, view)))
            tx.append(view.id, items, now)
        return True

    def _plan(
        self, view: JobView, market: Market, policy: PolicySet, now: datetime
    ) -> tuple[Plan, list[ev.DeadlineAtRisk]]:
        """The plan; when only the deadline is in the way, the plan without it, and word of the risk."""
        with self._journal.reading() as look:
            unclosed = look.unclosed()
            action = Action(ActionKind.RE_PLACE, view.job, view.user, job_id=view.id)
            deny = denials(policy, action, facts_from(look, policy, action, now))

        def plan(job: Job) -> Plan:
            return make_plan(
                job,
                with_occupancy(market.offers, unclosed),
                now=now,
                submitted_at=view.submitted_at,
                conditions=market.conditions,
                remaining=remaining_work(view),
                excluded=_cooling_down(view, now),
                deny=deny,
            )

        first = plan(view.job)
        if first.placements or Reason.MISSES_DEADLINE not in first.reasons():
            return first, []
        late = plan(view.job.model_copy(update={"deadline": None}))
        if not late.placements or view.deadline_at_risk:
            return late, []
        return late, [ev.DeadlineAtRisk(expected_finish=late.placements[0].finish, because="no placement meets it now")]

    def _note(self, view: JobView, body: ev.NothingFeasible, now: datetime) -> bool:
        """Say why the job waits, unless that was the last word already."""
        counted = ", ".join(f"{count} × {reason}" for reason, count in body.reasons.items())
        if counted == view.waiting_because:
            return False
        with self._journal.writing() as tx:
            current = tx.job(view.id)
            if current is not None and current.seq == view.seq:
                tx.append(view.id, [(None, body)], now)
        return True


def launch_request(job_id: str, number: int, placement: Placement, view: JobView | None = None) -> ev.LaunchRequested:
    """The intent to launch attempt ``number`` there, resuming from the newest checkpoint known."""
    checkpoint = view.checkpoint if view else None
    return ev.LaunchRequested(
        key=attempt_key(job_id, number),
        engine=placement.offer.engine or "",
        placement=placement,
        resume_from=checkpoint.id if checkpoint else None,
    )


def _refusal(found: Admission) -> ev.NothingFeasible | ev.Paused | None:
    """What a refused move means: a refused top-up pauses the job, everything else is waited out."""
    if found.answer is Answer.ALLOW:
        return None
    because = "; ".join(verdict.message for verdict in found.objections)
    if found.money:
        return ev.Paused(because=f"more money is needed and was refused: {because}")
    return ev.NothingFeasible(reasons={}, denied=because)


def _too_little(found: Admission, balance: Mapping[MoneyKind, Balance], now: datetime) -> ev.Paused | None:
    """Capacity that would have to stop before it has started is not worth starting."""
    placement = found.placement
    if placement.money is MoneyKind.AMORTISED:
        return None
    held = balance[placement.money].held if placement.money in balance else Money.ZERO
    left = held + found.money.get(placement.money, Money.ZERO)
    rate = ledger_rate(placement.offer) * placement.nodes
    until = paid_until(now, left, rate, billing=placement.offer.billing, stop_grace=STOP_GRACE)
    if until is not None and until <= now:
        return ev.Paused(because=f"the money left ({left}) does not pay for a start at {rate}/h")
    return None


def _cooling_down(view: JobView, now: datetime) -> dict[str, str]:
    return {
        attempt.placement.offer.pool: f"attempt {attempt.number}: {attempt.evidence}"
        for attempt in view.attempts
        if attempt.cause in (Cause.NO_CAPACITY, Cause.LAUNCH_FAILED) and now - (attempt.ended_at or now) < _COOL_DOWN
    }
