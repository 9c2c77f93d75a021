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
from broker.placement.planner import MarketFor, PlanInputs, make_plan
from broker.reconciler.admission.admission import subtract_occupied
from broker.reconciler.admission.approvals import approve_by_standing_grants
from broker.reconciler.admission.records import judge_start
from broker.reconciler.progress import remaining_work
from broker.store.jobs.journal import StoreWriter
from broker.store.jobs.live import attempts_of
from broker.store.jobs.reader import StoreReader
from broker.store.store import Store, writing_if


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


@dataclass(eq=False)
class Rejudging:
    """The reconciler's `LaunchCheck`."""

    journal: Store
    market: MarketFor
    policy: Callable[[], PolicySet]
    now: Callable[[], datetime]
    validity: Validity = Validity()

    def __call__(self, view: JobView, attempt: AttemptView) -> Ruling | Objection:
        """Raises `RetryLater` if offers are unavailable for now, `InvalidInput` if no policy can be read."""
        now, policy = self.now(), self.policy()
        if not _within(attempt.requested_at, now, self.validity.request):
            return Objection(Cause.REQUEST_EXPIRED, f"requested at {attempt.requested_at:%Y-%m-%d %H:%M} UTC")
        with self.journal.asking() as snapshot:
            if self._is_valid(snapshot, view, attempt, policy, now):
                return Ruling.LAUNCH
        market = self.market(view.job)
        with writing_if(self.journal, view) as tx:
            if self.policy().version != policy.version:
                return Ruling.LOOK_AGAIN
            placement = _current_placement(tx, view, attempt, market, now)
            if isinstance(placement, Objection):
                return placement
            return _judge(tx, view, attempt, placement, policy, now)

    def holds(self, view: JobView, attempt: AttemptView) -> bool:
        policy, now = self.policy(), self.now()
        with self.journal.asking() as snapshot:  # what changes after the first answer could change after the second
            current = snapshot.job(view.id)
            current_attempt = None if current is None or current.cancel_requested else current.attempt(attempt.number)
            if current is None or current_attempt is None or current_attempt.state is not AttemptState.REQUESTED:
                return False
            return self._is_valid(snapshot, current, current_attempt, policy, now)

    def _is_valid(
        self, snapshot: StoreReader, view: JobView, attempt: AttemptView, policy: PolicySet, now: datetime
    ) -> bool:
        last = snapshot.last_judged(view.id, attempt.number)
        return (
            last is not None
            and last.answer is Answer.ALLOW
            and last.policy_version == policy.version
            and _within(last.at, now, self.validity.judgement)
            and not _is_denied_by_time(view, attempt, policy, now)
        )


def _within(moment: datetime, now: datetime, longest: timedelta) -> bool:
    """Whether ``moment`` is at most ``longest`` ago. A future time (the clock was set back) is not."""
    return timedelta(0) <= now - moment <= longest


def _is_denied_by_time(view: JobView, attempt: AttemptView, policy: PolicySet, now: datetime) -> bool:
    """Whether a rule denies the launch because of time alone, such as a freeze that has begun."""
    start = Action(ActionKind.LAUNCH, view.job, view.user, placement=attempt.placement)
    return any(verdict.answer is Answer.DENY for verdict in policy.judge(start, Facts(now)))


def _current_placement(
    snapshot: StoreReader, view: JobView, attempt: AttemptView, market: PlanInputs, now: datetime
) -> Placement | Objection:
    """The attempt's placement at its offer's current price, or why the job must not start there."""
    requested = attempt.placement
    offers = [offer for offer in market.offers if offer.id == requested.offer.id]
    limited = any(offer.slots is not None for offer in offers)
    other_attempts = (
        [live_attempt for live_attempt in snapshot.live_attempts() if live_attempt.job_id != view.id] if limited else []
    )
    if limited and attempt.standby_until is not None:
        other_attempts += attempts_of(replace(view, attempts=view.attempts[:-1]))
    plan = make_plan(
        view.job.model_copy(update={"deadline": None}),  # a late finish is better than none
        subtract_occupied(offers, other_attempts),
        now=now,
        submitted_at=view.submitted_at,
        conditions=market.conditions,
        remaining=remaining_work(view),
    )
    best = plan.best
    if best is None:
        reasons = ", ".join(count_reasons(plan.rejections)) or "it is not offered"
        return Objection(Cause.REQUEST_EXPIRED, f"{requested.offer.pool} is no longer available: {reasons}")
    if best.rate != requested.rate:  # also if it fell: a fixed price is booked as the launch records it
        reason = f"{requested.offer.pool} costs {best.rate} per hour now, and {requested.rate} was judged"
        return Objection(Cause.REQUEST_EXPIRED, reason)
    return best


def _judge(
    tx: StoreWriter, view: JobView, attempt: AttemptView, placement: Placement, policy: PolicySet, now: datetime
) -> Ruling | Objection:
    """Judge the start, with the job's hold and a top-up if necessary, by the rules in force. Records the answer and
    dates the hold from now."""
    plan = Plan(now, (placement,), (), 1, remaining_work(view), view.deadline)
    judged = judge_start(tx, view, plan, policy, now)
    admission = judged.admission
    tx.record(replace(judged.record, attempt=attempt.number))
    if admission.answer is not Answer.ALLOW:
        text = "; ".join(f"{verdict.message} ({verdict.source})" for verdict in admission.objections)
        return Objection(Cause.DENIED_BEFORE_LAUNCH, text)
    if admission.short_of is not None:
        reason = f"the remaining money does not cover a start, which needs at least {admission.short_of}"
        return Objection(Cause.REQUEST_EXPIRED, reason)
    # The money is used from the launch on, not from the request on.
    tx.post(judged.hold)
    approvals = approve_by_standing_grants(tx, admission, view.id)
    if approvals:
        tx.append(view.id, [(None, approval) for approval in approvals], now)
        return Ruling.LOOK_AGAIN
    return Ruling.LAUNCH
