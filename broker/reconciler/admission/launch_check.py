"""Judges a requested launch again before it reaches its engine.

A launch is judged when it is requested, but may reach its engine much later: the engine, the run folder or a secret may
be unreachable for minutes or weeks, or the requesting process may have died. Prices, policies and budgets change
meanwhile. So this check runs before each call of `Engine.submit`: a judgment that is too old, made by other policies
or overtaken by a freeze is invalid, and the launch is judged again in one transaction, at current prices, by the rules
in force. The result is recorded. A launch that is no longer allowed is abandoned, and the job is placed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

from broker.core.events.outcomes import AttemptState, Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.job.placements import Placement, Plan
from broker.core.job.reasons import count_reasons
from broker.core.policy.policy import Action, ActionKind, Answer, Facts
from broker.core.ports import PolicySet
from broker.ledger.entries import Movement
from broker.ledger.journal import Journal, Reading, Writing, writing_if
from broker.placement.planner import make_plan
from broker.reconciler.admission.admission import re_place, with_occupancy
from broker.reconciler.admission.approvals import through_standing, usable
from broker.reconciler.admission.facts import facts_of
from broker.reconciler.admission.records import decision_of, held_of, hold_entries, movements_of
from broker.reconciler.controllers.placement import MarketFor, PlanInputs
from broker.reconciler.progress import billed_time, remaining_work
from broker.reconciler.settlement.settlement import tags_of


class Ruling(Enum):
    """The next step for a requested launch: launch it now, or read the job again first."""

    LAUNCH = "launch"
    LOOK_AGAIN = "look_again"


@dataclass(frozen=True, slots=True)
class Objection:
    """The launch is denied: the cause of the attempt's end, and the reason as a sentence."""

    cause: Cause
    why: str


class LaunchCheck(Protocol):
    """Checks whether a requested launch may reach its engine."""

    def __call__(self, view: JobView, attempt: AttemptView) -> Ruling | Objection:
        """Judge the launch again if no judgment is valid. Raises `BrokerError` if it cannot be judged."""

    def holds(self, view: JobView, attempt: AttemptView) -> bool:
        """Whether the launch may be made now: the last judgment is valid, and the request was not abandoned.
        Thread-safe; records nothing. Raises `BrokerError`."""


@dataclass(frozen=True, slots=True)
class Validity:
    """Validity in broker time. ``judgement``: of a judgment, until the launch is judged again; ``request``: of the
    request, regardless of later judgments."""

    judgement: timedelta = timedelta(minutes=1)
    request: timedelta = timedelta(minutes=20)

    def scaled(self, factor: float) -> Validity:
        """For a sandbox that runs faster: the reconciler still ticks in wall-clock time."""
        return Validity(self.judgement * factor, self.request * factor)


class Rejudging:
    """The reconciler's `LaunchCheck`."""

    def __init__(
        self,
        journal: Journal,
        market: MarketFor,
        policy: Callable[[], PolicySet],
        now: Callable[[], datetime],
        validity: Validity | None = None,
    ) -> None:
        self._journal = journal
        self._market = market
        self._policy = policy
        self._now = now
        self._validity = validity or Validity()

    def __call__(self, view: JobView, attempt: AttemptView) -> Ruling | Objection:
        """Raises `RetryLater` if offers are unavailable for now, `InvalidInput` if no policy can be read."""
        now, policy = self._now(), self._policy()
        if not _within(attempt.requested_at, now, self._validity.request):
            return Objection(Cause.REQUEST_EXPIRED, f"requested at {attempt.requested_at:%Y-%m-%d %H:%M} UTC")
        with self._journal.asking() as look:
            if self._is_valid(look, view, attempt, policy, now):
                return Ruling.LAUNCH
        market = self._market(view.job)
        with writing_if(self._journal, view) as tx:
            if self._policy().version != policy.version:
                return Ruling.LOOK_AGAIN
            placement = _at_present(tx, view, attempt, market, now)
            if isinstance(placement, Objection):
                return placement
            return _judged(tx, view, attempt, placement, policy, now)

    def holds(self, view: JobView, attempt: AttemptView) -> bool:
        policy, now = self._policy(), self._now()
        with self._journal.asking() as look:  # what changes after the first answer could change after the second
            current = look.job(view.id)
            known = None if current is None or current.cancel_requested else current.attempt(attempt.number)
            if current is None or known is None or known.state is not AttemptState.REQUESTED:
                return False
            return self._is_valid(look, current, known, policy, now)

    def _is_valid(self, look: Reading, view: JobView, attempt: AttemptView, policy: PolicySet, now: datetime) -> bool:
        last = look.last_judged(view.id, attempt.number)
        return (
            last is not None
            and last.answer is Answer.ALLOW
            and last.policy_version == policy.version
            and _within(last.at, now, self._validity.judgement)
            and not _denied_by_now(view, attempt, policy, now)
        )


def _within(then: datetime, now: datetime, longest: timedelta) -> bool:
    """Whether ``then`` is at most ``longest`` ago. A future time (the clock was set back) is not."""
    return timedelta(0) <= now - then <= longest


def _denied_by_now(view: JobView, attempt: AttemptView, policy: PolicySet, now: datetime) -> bool:
    """Whether a rule denies the launch because of time alone, such as a freeze that has begun."""
    start = Action(ActionKind.LAUNCH, view.job, view.user, placement=attempt.placement)
    return any(verdict.answer is Answer.DENY for verdict in policy.judge(start, Facts(now)))


def _at_present(
    look: Reading, view: JobView, attempt: AttemptView, market: PlanInputs, now: datetime
) -> Placement | Objection:
    """The attempt's placement at its offer's current price, or why the job must not start there."""
    before = attempt.placement
    offers = [offer for offer in market.offers if offer.id == before.offer.id]
    limited = any(offer.slots is not None for offer in offers)
    others = [one for one in look.live_attempts() if one.job_id != view.id] if limited else []
    plan = make_plan(
        view.job.model_copy(update={"deadline": None}),  # a late finish is better than none
        with_occupancy(offers, others),
        now=now,
        submitted_at=view.submitted_at,
        conditions=market.conditions,
        remaining=remaining_work(view),
    )
    found = plan.best
    if found is None:
        reasons = ", ".join(count_reasons(plan.rejections)) or "it is not offered"
        return Objection(Cause.REQUEST_EXPIRED, f"{before.offer.pool} is no longer available: {reasons}")
    if found.rate != before.rate:  # also if it fell: a fixed price is booked as the launch records it
        why = f"{before.offer.pool} costs {found.rate} per hour now, and {before.rate} was judged"
        return Objection(Cause.REQUEST_EXPIRED, why)
    return found


def _judged(
    tx: Writing, view: JobView, attempt: AttemptView, placement: Placement, policy: PolicySet, now: datetime
) -> Ruling | Objection:
    """Judge the start, with the job's hold and a top-up if necessary, by the rules in force. Records the answer and
    dates the hold from now."""
    plan = Plan(now, (placement,), (), 1, remaining_work(view), view.deadline)
    facts_for, mine = facts_of(tx, policy, now), usable(view, tx.balance(view.id))
    found = re_place(view, plan, policy, facts_for, mine, billed=billed_time(view, now), now=now)
    record = decision_of(found, plan, policy, facts_for(found.action))
    tx.record(replace(record, job_id=view.id, attempt=attempt.number))
    if found.answer is not Answer.ALLOW:
        words = "; ".join(f"{verdict.message} ({verdict.source})" for verdict in found.objections)
        return Objection(Cause.DENIED_BEFORE_LAUNCH, words)
    if found.short_of is not None:
        why = f"the remaining money does not cover a start, which needs at least {found.short_of}"
        return Objection(Cause.REQUEST_EXPIRED, why)
    # The money is used from the launch on, not from the request on.
    dated = hold_entries(tags_of(view), held_of(mine), found.burns, Movement.TOP_UP, movements_of(tx, view.id))
    tx.post(dated)
    given = through_standing(tx, found, view.id)
    if given:
        tx.append(view.id, [(None, one) for one in given], now)
        return Ruling.LOOK_AGAIN
    return Ruling.LAUNCH
