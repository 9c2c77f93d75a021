"""The gate for running attempts: all rules judge at intervals whether they may continue.

A denied attempt saves a checkpoint and is stopped; the rule's objection is in the job's events, and the decision is
recorded. While the policy cannot be read, attempts continue within their hold.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.core.errors import BrokerError
from broker.core.events import events as ev
from broker.core.events.outcomes import AttemptState, Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.events.wait_reasons import RulesDeny
from broker.core.job.jobs import Job
from broker.core.market.offers import MoneyKind
from broker.core.policy.decisions import Decision, dump_inputs, seal
from broker.core.policy.policy import (
    Action,
    ActionKind,
    Answer,
    BudgetUse,
    Facts,
    IdleLimit,
    UnusualSpending,
    Usage,
    Verdict,
)
from broker.core.ports import LimitsIdleness, PolicySet
from broker.ledger.budgets import future_period_edges
from broker.ledger.entries import Balance
from broker.reconciler.admission.admission import action_for, strictest
from broker.reconciler.controller import AtRest, Controller, ControllerResult, DecideAnew, JobContext
from broker.reconciler.progress import billed_time
from broker.store.store import Store, writing_if

log = logging.getLogger(__name__)
_NONE_EXCEEDED: Mapping[str, tuple[BudgetUse, ...]] = {}

UsageOf = Callable[[JobView, AttemptView], Sequence[Usage]]
ExceededBudgets = Callable[[PolicySet, datetime], Mapping[str, tuple[BudgetUse, ...]]]
UnusualOf = Callable[[datetime], Mapping[str, UnusualSpending]]


class Enforcement(Controller):
    """Judges running attempts. ``usage``: returns the utilization of an attempt's accelerators; called only if some
    rule needs it. ``every``: the interval between judgments of a job, in broker time. ``over``: returns the
    budgets that stop running attempts; ``unusual``: by job, the parts in anomalies of spending, called only if some
    rule needs them."""

    def __init__(
        self,
        journal: Store,
        policy: Callable[[], PolicySet],
        now: Callable[[], datetime],
        usage: UsageOf = lambda view, attempt: (),
        every: timedelta = timedelta(seconds=15),
        over: ExceededBudgets = lambda policy, now: {},
        unusual: UnusualOf = lambda now: {},
    ) -> None:
        self._journal = journal
        self._policy = policy
        self._now = now
        self._unusual = unusual
        self._usage = usage
        self._every = every
        self._over = over
        self._read: tuple[datetime, PolicySet | None] | None = None
        self._last: PolicySet | None = None
        self._trouble = ""  # logged once
        self._warned: dict[str, tuple[int, frozenset[str]]] = {}  # by job: the warnings recorded for its newest attempt
        self._idle: tuple[str, Sequence[LimitsIdleness]] | None = None

    def goes_by(self, about: JobContext) -> str | None:
        attempt = about.view.latest
        if attempt is None or not _can_be_stopped(about.view, attempt):
            return None
        policy = self._active(about.now)
        return None if policy is None else policy.version

    def reconcile(self, about: JobContext) -> ControllerResult:
        """Stop the attempt if a rule denies that it continues."""
        view, now, attempt, policy = about.view, about.now, about.view.latest, self._active(about.now)
        assert attempt is not None, "a job without an attempt gets no such step"
        assert policy is not None, "without a policy nothing stops a job"
        usage = self._usage_of(view, attempt) if policy.needs_usage else ()
        exceeded = self._exceeded_budgets(policy, now)
        unusual = self._unusual_of(now).get(view.id) if policy.needs_anomalies else None
        judgment = judge_running(about.money, policy, view, attempt, usage, now, exceeded, unusual)
        if judgment.answer is not Answer.DENY:
            self._keep_warnings(view, attempt, policy, judgment)
            return AtRest(now + self._every)
        denied = judgment.decision(policy, view, attempt)
        objections = tuple(verdict.objection for verdict in denied.verdicts if verdict.answer is Answer.DENY)
        self._read = None  # if the policy is not read now, the attempt is judged by the one in force at that time
        with writing_if(self._journal, view) as tx:
            if self._policy().version == policy.version:
                tx.record(denied)
                reason = RulesDeny(objections=objections)
                body = ev.StopRequested(cause=Cause.STOPPED_BY_POLICY, by="the policy", reason=reason)
                tx.append(view.id, [(attempt.number, body)], now)
        return DecideAnew()

    def forget(self, key: str) -> None:
        self._warned.pop(key, None)

    def _keep_warnings(self, view: JobView, attempt: AttemptView, policy: PolicySet, judgment: RunningJudgment) -> None:
        """Record, once per attempt, the verdicts of rules that only warn."""
        warnings = attempt.number, frozenset(verdict.name for verdict in judgment.verdicts if verdict.warns)
        if not warnings[1] or self._warned.get(view.id) == warnings:
            return
        with writing_if(self._journal, view) as tx:
            recorded = tx.decisions(job_id=view.id, action=ActionKind.CONTINUE)
            recorded_warnings = {
                (decision.attempt, frozenset(v.name for v in decision.verdicts if v.warns)) for decision in recorded
            }
            if warnings not in recorded_warnings:
                tx.record(judgment.decision(policy, view, attempt))
        self._warned[view.id] = warnings

    def max_unattended(self, job: Job) -> timedelta | None:
        """The longest time that a job's rented machines may run without a broker: the shorter limit of the job and of
        the last readable policy. None: their funded time."""
        policy = self._active(self._now()) or self._last
        limits = (job.max_unattended, policy.defaults.max_unattended if policy else None)
        return min((longest for longest in limits if longest is not None), default=None)

    def idle_limits(self, view: JobView) -> tuple[IdleLimit, ...]:
        """The idleness limits that the job's node enforces alone, of the last readable policy. Rules with a condition
        are omitted: they need all facts."""
        policy = self._active(self._now()) or self._last
        if policy is None:
            return ()
        if self._idle is None or self._idle[0] != policy.version:
            rules = [
                rule
                for rule in policy.rules
                if isinstance(rule, LimitsIdleness) and not policy.when(rule.name) and not policy.warns(rule.name)
            ]
            self._idle = (policy.version, rules)
        if not self._idle[1]:
            return ()
        action = Action(ActionKind.CONTINUE, view.job, view.user)
        return tuple(limit for rule in self._idle[1] if (limit := rule.idle_limit(action)) is not None)

    def future_period_edges(self, view: JobView, kind: MoneyKind) -> tuple[datetime, ...]:
        """The ends of the current periods (UTC) of the budgets that count this money of the job, by the last readable
        policy."""
        now = self._now()
        policy = self._active(now) or self._last
        return () if policy is None else future_period_edges(policy.budgets(view.job, view.user), kind, now)

    def _active(self, now: datetime) -> PolicySet | None:
        """The policy in force, read once per tick for all jobs; None if it cannot be read."""
        if self._read is not None and timedelta(0) <= now - self._read[0] < self._every / 5:
            return self._read[1]
        policy = None
        try:
            policy = self._last = self._policy()
            self._trouble = ""
        except BrokerError as error:
            if self._trouble != str(error):
                self._trouble = str(error)
                log.warning("running jobs are not judged, because the policy cannot be read: %s", error)
        self._read = (now, policy)
        return policy

    def _exceeded_budgets(self, policy: PolicySet, now: datetime) -> Mapping[str, tuple[BudgetUse, ...]]:
        try:
            return self._over(policy, now)
        except BrokerError as error:
            log.warning("the exceeded budgets cannot be determined: %s", error)
            return {}

    def _unusual_of(self, now: datetime) -> Mapping[str, UnusualSpending]:
        try:
            return self._unusual(now)
        except BrokerError as error:
            log.warning("unusual spending cannot be determined: %s", error)
            return {}

    def _usage_of(self, view: JobView, attempt: AttemptView) -> tuple[Usage, ...]:
        try:
            return tuple(self._usage(view, attempt))
        except BrokerError as error:
            log.warning("job %s, attempt %s: its utilization cannot be read: %s", view.id, attempt.number, error)
            return ()


@dataclass(frozen=True, slots=True)
class RunningJudgment:
    """The rules' verdicts on a running attempt, with their inputs."""

    action: Action
    facts: Facts
    verdicts: tuple[Verdict, ...]

    @property
    def answer(self) -> Answer:
        return strictest(self.verdicts)

    def decision(self, policy: PolicySet, view: JobView, attempt: AttemptView) -> Decision:
        inputs, judged = dump_inputs(self.action, self.facts), (self.action, self.answer, self.verdicts, policy.version)
        return seal(inputs, *judged, at=self.facts.now, job_id=view.id, attempt=attempt.number)


def judge_running(
    money: Mapping[MoneyKind, Balance],
    policy: PolicySet,
    view: JobView,
    attempt: AttemptView,
    usage: Sequence[Usage],
    now: datetime,
    over: Mapping[str, tuple[BudgetUse, ...]] = _NONE_EXCEEDED,
    unusual: UnusualSpending | None = None,
) -> RunningJudgment:
    """Judges a running attempt. A guardrail that requires an approval lets only approved attempts continue. ``over``:
    the budgets that stop running attempts; ``unusual``: its part in an anomaly of spending."""
    billed = billed_time(view, now)
    action = action_for(ActionKind.CONTINUE, view, attempt.placement, billed, money, usage=tuple(usage))
    # Other running attempts and budget balances matter only for starts: of two running attempts, neither is the one too
    # many. Reading them for every job would take longer than the interval between judgments.
    own_exceeded = {b.id: over[b.id] for b in policy.budgets(view.job, view.user) if b.id in over} if over else {}
    facts = Facts(now, budgets=own_exceeded, grants=view.grants, unusual=unusual)
    return RunningJudgment(action, facts, tuple(policy.judge(action, facts)))


def _can_be_stopped(view: JobView, attempt: AttemptView) -> bool:
    """Whether it has a machine to stop and no stop was requested."""
    return (
        not attempt.state.final
        and attempt.state is not AttemptState.REQUESTED
        and attempt.stop_requested is None
        and not view.cancel_requested
    )
