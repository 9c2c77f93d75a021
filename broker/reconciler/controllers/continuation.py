"""Resumes jobs that a policy stopped, or refused money, once a later policy allows it.

Each policy judges such a job once: by the rules for running attempts, as if it still ran where it was stopped, to
verify that their objection is gone; and by the gate for starts. A new denial is recorded, and the job waits for the
next policy or its owner (`gpubroker jobs extend`). `CapacityEnd` moves jobs off bought capacity before it ends.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from broker.core.errors import InvalidInput
from broker.core.events import events as ev
from broker.core.events.outcomes import AttemptState, Cause, JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import (
    AttemptStopped,
    MoneyEnded,
    MoneyRefused,
    MoneyTooLittle,
    MoreMoneyDenied,
    MoveAdvantage,
    MovesElsewhere,
    RulesDeny,
    StoppedByPolicy,
)
from broker.core.market.offers import CapacityType, Offer
from broker.core.policy.decisions import Decision, dump_inputs, inputs_of, seal
from broker.core.policy.policy import Action, ActionKind, Answer, UnusualSpending
from broker.core.ports import PolicySet
from broker.reconciler.admission.facts import facts_of
from broker.reconciler.admission.records import judge_start
from broker.reconciler.controller import AtRest, Controller, ControllerResult, DecideAnew, JobContext
from broker.reconciler.controllers.enforcement import ExceededBudgets, UnusualOf, judge_running
from broker.reconciler.controllers.placement import Plans, placement_action
from broker.store.jobs.journal import StoreWriter
from broker.store.jobs.reader import StoreReader
from broker.store.store import Store, append_if, writing_if

log = logging.getLogger(__name__)

BY_POLICY = "the policy"


def is_out_of_money(view: JobView) -> bool:
    """Whether the job is paused because the money held for it ended, or too little was granted for a start."""
    if view.state is not JobState.PAUSED_BUDGET or view.cancel_requested:
        return False
    match view.waiting:
        case MoneyEnded() | MoneyRefused() | MoneyTooLittle() | AttemptStopped(cause=Cause.PAID_UNTIL | Cause.MAX_COST):
            return all(attempt.over for attempt in view.attempts)
        case _:
            return False


def is_stopped_by_rules(view: JobView) -> bool:
    """Whether the job is paused because rules of a policy stopped it or refused it money. A stop by its node, for
    idleness, does not count: the job might idle again."""
    if view.state is not JobState.PAUSED_BUDGET or view.cancel_requested:
        return False
    match view.waiting:
        case StoppedByPolicy(stop=RulesDeny()) | MoneyEnded(stop=MoreMoneyDenied()) | MoneyRefused():
            return True
        case _:
            return False


def is_due(snapshot: StoreReader, view: JobView, policy: PolicySet) -> bool:
    """Whether the policy in force has not yet judged a job that an earlier one stopped."""
    if not is_stopped_by_rules(view):
        return False
    last = next(iter(snapshot.decisions(job_id=view.id, limit=1)), None)
    return last is not None and last.policy_version != policy.version


@dataclass(eq=False)
class Continuation(Controller):
    """Resumes jobs that policies stopped. ``plans`` makes the plans for a job's remaining work; ``over``: returns the
    budgets that stop running attempts; ``unusual``: by job, the parts in anomalies of spending."""

    journal: Store
    policy: Callable[[], PolicySet]
    plans: Callable[[JobView, PolicySet, datetime], Plans]
    over: ExceededBudgets = lambda policy, now: {}
    unusual: UnusualOf = lambda now: {}

    def goes_by(self, about: JobContext) -> str | None:
        if not is_stopped_by_rules(about.view) or not all(attempt.over for attempt in about.view.attempts):
            return None
        try:
            return self.policy().version
        except InvalidInput:
            return None  # an unreadable policy resumes nothing

    def reconcile(self, about: JobContext) -> ControllerResult:
        """Resume the job, or record the denial. Raises `RetryLater` if offers are unavailable for now,
        `NoLongerCurrent`."""
        view, now, policy = about.view, about.now, self.policy()
        with self.journal.reading() as snapshot:
            if not is_due(snapshot, view, policy):
                return AtRest()
        plans = self.plans(view, policy, now)
        unusual = self.unusual(now).get(view.id) if policy.needs_anomalies else None
        with writing_if(self.journal, view) as tx:
            if self.policy().version != policy.version:
                return DecideAnew()
            denied = self._denied_where_stopped(tx, view, policy, now, unusual) or denied_at_gate(
                tx, view, policy, plans, now
            )
            if denied is not None:
                tx.record(denied)
                return AtRest()
            tx.append(view.id, [(None, ev.Extended(by=BY_POLICY))], now)
        return DecideAnew()

    def _denied_where_stopped(
        self, tx: StoreWriter, view: JobView, policy: PolicySet, now: datetime, unusual: UnusualSpending | None
    ) -> Decision | None:
        """The denial by the rules for running attempts, judged as at the stop; None if they allow it."""
        attempt = view.latest
        if attempt is None or not isinstance(view.waiting, StoppedByPolicy):
            return None
        usage = _action_at_stop(tx, view).usage
        exceeded = self.over(policy, now)
        judgment = judge_running(tx.balance(view.id), policy, view, attempt, usage, now, exceeded, unusual)
        return judgment.decision(policy, view, attempt) if judgment.answer is Answer.DENY else None


def _action_at_stop(snapshot: StoreReader, view: JobView) -> Action:
    """The action judged at the stop; one without details if it is not on record."""
    try:
        decisions = snapshot.decisions(job_id=view.id, action=ActionKind.CONTINUE, limit=1)
        inputs = inputs_of(decisions[0]) if decisions else None
    except (ValueError, LookupError, TypeError) as error:
        log.warning("the reason why job %s was stopped cannot be read: %s", view.id, error)
        inputs = None
    return inputs.action if inputs is not None else Action(ActionKind.CONTINUE, view.job, view.user)


def denied_at_gate(tx: StoreWriter, view: JobView, policy: PolicySet, plans: Plans, now: datetime) -> Decision | None:
    """The gate's refusal of all placements; None if it allows one, or if only the market prevents a start."""
    plan = plans.in_time if plans.in_time.placements else plans.anyhow
    if plan.placements:
        judged = judge_start(tx, view, plan, policy, now)
        if judged.admission.answer is not Answer.DENY and judged.admission.short_of is None:
            return None
        return judged.record
    if not any(rejection.objection is not None for rejection in plan.rejections):
        return None
    last_placement = view.latest.placement if view.latest is not None else None
    action = replace(placement_action(view, now), placement=last_placement)
    inputs = dump_inputs(action, facts := facts_of(tx, policy, now)(action))
    verdicts = tuple(policy.judge(action, facts))
    return seal(inputs, action, Answer.DENY, verdicts, policy.version, at=now, job_id=view.id)


@dataclass(eq=False)
class CapacityEnd(Controller):
    """Stops an attempt when its job has to leave the capacity that it runs on.

    ``leaves``: returns that time (UTC) for a placement's offer; None for an offer that does not end. ``every``:
    how long this answer is reused, in broker time.
    """

    journal: Store
    leaves: Callable[[Offer], datetime | None]
    every: timedelta = timedelta(minutes=1)

    def goes_by(self, about: JobContext) -> int | None:
        """The attempt that occupies reserved capacity."""
        latest = about.view.latest
        if latest is None or latest.state.final or latest.stop_requested is not None or about.view.cancel_requested:
            return None
        is_reserved = latest.placement.offer.capacity_type is CapacityType.RESERVED
        return latest.number if is_reserved and latest.state is not AttemptState.REQUESTED else None

    def reconcile(self, about: JobContext) -> ControllerResult:
        """Stop the attempt if it is time. Raises `NoLongerCurrent` and `StoreProblem`."""
        view, latest, now = about.view, about.view.latest, about.now
        assert latest is not None, "a job without an attempt gets no such step"
        leave_at = self.leaves(latest.placement.offer)
        if leave_at is None or now < leave_at:
            return AtRest(now + self.every if leave_at is None else min(leave_at, now + self.every))
        explanation = f"the bought capacity ends soon; the job leaves it at {leave_at:%Y-%m-%d %H:%M} UTC"
        reason = MovesElsewhere(advantage=MoveAdvantage.CAPACITY_ENDS, to=None, because=explanation)
        stop = ev.StopRequested(cause=Cause.MOVED, by="the end of the bought capacity", reason=reason)
        append_if(self.journal, view, [(latest.number, stop)], now)
        return DecideAnew()
