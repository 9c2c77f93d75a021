"""A rehearsal of the reconciler's next pass: its controllers judge every open job in a transaction that is rolled back,
under the policies in force or under others.

No engine is called; only the decisions are recorded. The same code decides as in the reconciler.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import islice

from broker.app.billing import budgets
from broker.app.jobs.runs_root import run_folders
from broker.app.market.market import freshen, wants_sandbox
from broker.app.service import reconciler_setup
from broker.app.service.reconciler_setup import Judging
from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.events.wait_reasons import MoneyRefused, MoreMoneyDenied, PolicyDenies, RulesDeny
from broker.core.job.reasons import RuleObjection
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import ActionKind, Answer, BudgetUse
from broker.core.ports import PolicySet
from broker.ledger.journal import NoLongerCurrent
from broker.reconciler import decide
from broker.reconciler.admission.approvals import refuse
from broker.reconciler.admission.launch_check import Objection
from broker.reconciler.controller import Controller, JobContext
from broker.reconciler.controllers.enforcement import said_to_running
from broker.reconciler.progress import billed_time
from broker.reconciler.settlement.batch import release_all
from broker.reconciler.visit_order import in_turn, waits
from broker.store import Store

# Placing a job needs a plan, and other processes cannot write during a rehearsal, so only this many waiting jobs are
# checked, in queue order. Running jobs and requests need no plan, and all of them are checked.
MOST_WAITING = 200
LONGEST = 5.0  # seconds of the wall clock after which a rehearsal ends; other writers give up after 15
_MOST_STEPS = 4  # of one job: request, approval, placement, and one spare


class Effect(StrEnum):
    """The outcome of the next pass for a job."""

    STOPS = "stops"  # checkpoint first
    STOPS_LATER = "stops_later"  # after the grace period of an exceeded budget
    MOVES = "moves"
    GOES_ON = "goes_on"  # a policy had stopped it, and it is placed again
    STARTS = "starts"
    GIVES_UP_LAUNCH = "gives_up_launch"  # the requested launch is not allowed any more; the job is placed again
    REFUSED = "refused"  # it waits, and the policies allow no placement
    GRANTED = "granted"  # no approval is needed any more
    ASKS = "asks"  # an approval is needed from now on, or other approvers have to give it
    CANNOT_BE_APPROVED = "cannot_be_approved"
    WAITS = "waits"  # it would have started under the current policies
    WARNS = "warns"  # it continues; a rule that only warns would stop it
    LET_GO = "let_go"  # the policies in force would stop it, these do not


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The outcome for one job. ``rules``: the rules that cause it; ``where``: the pool on which it starts; ``asks``:
    who may approve; ``at``: the time (UTC), if not at once."""

    job_id: str
    name: str
    user: str
    team: str | None
    effect: Effect
    rules: tuple[RuleObjection, ...] = ()
    where: str = ""
    asks: tuple[str, ...] = ()
    at: datetime | None = None

    @property
    def same_as(self) -> tuple[object, ...]:
        """The key by which two outcomes count as equal."""
        return self.effect, self.where, self.asks, frozenset((one.name, one.code) for one in self.rules)


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The outcomes by job id. ``looked_at``: the open jobs that were checked; ``left_out``: how many were not.
    ``budgets``: each budget after the pass."""

    outcomes: Mapping[str, JobOutcome]
    looked_at: frozenset[str]
    left_out: int
    budgets: Sequence[budgets.BudgetLine]


def rehearse(broker: Broker, files: Mapping[str, str] | None = None, longest: float = LONGEST) -> Rehearsed:
    """The outcomes of the next pass if these policy files were applied now (None: the policies in force). Changes
    nothing. ``longest``: jobs not reached within this many seconds of the wall clock are left out. Raises
    `StoreProblem`, and `InvalidInput` for invalid files."""
    with broker.store.reading() as look:
        jobs = [view.job for view in look.unclosed()]
    for sandbox in {wants_sandbox(job) for job in jobs}:
        freshen(broker, sandbox=sandbox)  # before the transaction, so that polled prices are not rolled back
    with broker.store.rehearsal() as store:
        if files is not None:
            store.activate_policy(files, by="", note="")
        tried = broker.over(store)
        budgets.check(tried)  # records which budgets are exceeded
        return _look(tried, store, longest)


def _look(broker: Broker, store: Store, longest: float) -> Rehearsed:
    now, ends = broker.clock.now(), time.monotonic() + longest
    judging = reconciler_setup.judging(broker, run_folders(broker), rest=0.0)
    with store.reading() as look:
        views = in_turn(look.unclosed(), now)
    waiting = {view.id for view in islice((view for view in views if waits(view)), MOST_WAITING)}
    chosen = [view for view in views if not waits(view) or view.id in waiting]
    job, policy = _JobRehearsal(store, judging, now), broker.policy()
    found: dict[str, JobOutcome] = {}
    looked_at: list[str] = []
    for view in chosen:
        if time.monotonic() >= ends:
            break
        looked_at.append(view.id)
        outcome = job.outcome(view)
        if outcome is None or outcome.effect is Effect.WARNS:
            outcome = _stops_later(store, policy, view, now) or outcome
        if outcome is not None:
            found[view.id] = outcome
    return Rehearsed(found, frozenset(looked_at), len(views) - len(looked_at), budgets.budgets(broker))


@dataclass(frozen=True, slots=True)
class _JobRehearsal:
    """Takes the reconciler's steps for one job after another, without those that concern machines."""

    store: Store
    judging: Judging
    now: datetime

    def outcome(self, view: JobView) -> JobOutcome | None:
        """The outcome for the job; None if nothing happens."""
        found: JobOutcome | None = None
        for _ in range(_MOST_STEPS):
            given_up = self._step(view)
            if given_up:
                found = found or _outcome(view, Effect.GIVES_UP_LAUNCH, self._newest_denial(view))
            fresh = self._again(view)
            if fresh is None or fresh.seq == view.seq:
                break
            found, view = found or self._told(view, fresh), fresh
        if found is not None:
            return found
        return self._denied_request(view) or self._warned(view)

    def _warned(self, view: JobView) -> JobOutcome | None:
        newest = self._newest(view)
        if newest is None or newest.action is not ActionKind.CONTINUE:
            return None
        said = [verdict.objection for verdict in newest.verdicts if verdict.warns]
        return _outcome(view, Effect.WARNS, said) if said else None

    def _step(self, view: JobView) -> bool:
        """Take the next steps; returns whether the policies cancelled a requested launch."""
        about = self._about(view)
        holds = any(balance.held for balance in about.money.values())
        for step in decide.next_steps(view, self.now, billed=billed_time(view, self.now), holds=holds):
            match step:
                case decide.Place():
                    self._asked(self.judging.placing, about)
                case decide.Submit(attempt):
                    return self._checked(view, attempt)
                case _:
                    self._taken(view, step)
        for judge in self.judging.what_runs:
            if (fresh := self._again(view)) is None or fresh.seq != view.seq:
                break
            self._asked(judge, about)
        return False

    def _taken(self, view: JobView, step: decide.Step) -> None:
        """Take a step that releases money, so that it is free for other jobs."""
        with self.store.writing() as tx:
            match step:
                case decide.Pause(reason):
                    tx.append(view.id, [(None, ev.Paused(reason=reason))], self.now)
                case decide.Expire():
                    refuse(tx, view, self.now)
                case decide.End(state, ending):
                    tx.append(view.id, [(None, ev.JobEnded(state=state, reason=ending))], self.now)
                case decide.Release() | decide.Close():
                    release_all(tx, [view], self.now)
                case _:
                    return

    def _asked(self, controller: Controller, about: JobContext) -> None:
        try:
            if controller.goes_by(about) is not None:
                controller.reconcile(about)
        except (BrokerError, NoLongerCurrent):
            return  # the reconciler tries again in its next pass

    def _checked(self, view: JobView, attempt: AttemptView) -> bool:
        """Judge a requested launch again; returns whether the policies deny it now, so that the job is placed again."""
        try:
            found = self.judging.check(view, attempt)
        except (BrokerError, NoLongerCurrent):
            return False
        if isinstance(found, Objection):
            with self.store.writing() as tx:
                ended = ev.AttemptEnded(cause=found.cause, evidence=found.why)
                tx.append(view.id, [(attempt.number, ended)], self.now)
        return isinstance(found, Objection) and found.cause is Cause.DENIED_BEFORE_LAUNCH

    def _about(self, view: JobView) -> JobContext:
        with self.store.reading() as look:
            return JobContext(view, self.now, look.balance(view.id))

    def _again(self, view: JobView) -> JobView | None:
        with self.store.reading() as look:
            return look.job(view.id)

    def _told(self, before: JobView, view: JobView) -> JobOutcome | None:
        """The outcome that the newest events of the job show; None for intermediate events."""
        with self.store.reading() as look:
            fresh = [event.body for event in look.events(view.id) if event.seq > before.seq]
        found = [outcome for body in fresh if (outcome := _of_event(view, body)) is not None]
        return found[0] if found else None

    def _denied_request(self, view: JobView) -> JobOutcome | None:
        """The outcome for an open request that nobody can approve any more, or that has other approvers now."""
        if view.asked is None:
            return None
        newest = self._newest(view)
        if newest is None or newest.answer is Answer.ALLOW:
            return None
        said = tuple(verdict.objection for verdict in newest.verdicts if verdict.answer is newest.answer)
        if newest.answer is Answer.DENY:
            return _outcome(view, Effect.CANNOT_BE_APPROVED, said)
        whom = {name for verdict in newest.verdicts if verdict.answer is Answer.ASK for name in verdict.approvers}
        before = {name for question in view.asked.open for name in question.approvers}
        return None if whom == before else replace(_outcome(view, Effect.ASKS, said), asks=tuple(sorted(whom)))

    def _newest(self, view: JobView) -> Decision | None:
        """The job's decision of this pass, if any."""
        with self.store.reading() as look:
            newest = next(iter(look.decisions(job_id=view.id, limit=1)), None)
        return newest if newest is not None and newest.at >= self.now else None

    def _newest_denial(self, view: JobView) -> tuple[RuleObjection, ...]:
        newest = self._newest(view)
        verdicts = newest.verdicts if newest else ()
        return tuple(verdict.objection for verdict in verdicts if verdict.answer is not Answer.ALLOW)


def _of_event(view: JobView, body: ev.EventBody) -> JobOutcome | None:
    match body:
        case ev.StopRequested(cause=Cause.MOVED):
            return _outcome(view, Effect.MOVES)
        case ev.StopRequested(reason=RulesDeny(objections=said) | MoreMoneyDenied(objections=said)):
            return _outcome(view, Effect.STOPS, said)
        case ev.LaunchRequested():
            return replace(_outcome(view, Effect.STARTS), where=body.placement.offer.pool)
        case ev.Extended(max_cost=None, max_duration_seconds=None):
            return _outcome(view, Effect.GOES_ON)
        case ev.ApprovalAsked():
            rules = tuple(RuleObjection("", q.rule, "asks", q.because, q.source) for q in body.questions)
            return replace(_outcome(view, Effect.ASKS, rules), asks=tuple(sorted(body.approvers)))
        case ev.ApprovalGiven(by=""):
            return _outcome(view, Effect.GRANTED)
        case ev.Paused(reason=MoneyRefused(objections=said)) | ev.NothingFeasible(reason=PolicyDenies(objections=said)):
            return _outcome(view, Effect.REFUSED, said)
        case _:
            return None


def _outcome(view: JobView, effect: Effect, rules: Iterable[RuleObjection] = ()) -> JobOutcome:
    return JobOutcome(view.id, view.job.name, view.user, view.job.team, effect, tuple(rules))


def _stops_later(store: Store, policy: PolicySet, view: JobView, now: datetime) -> JobOutcome | None:
    """The outcome for a job that stops once the grace period of an exceeded budget is over."""
    attempt = view.latest
    stopping = [rule for rule in budgets.rules_of(policy) if rule.config.action == "stop"]
    if not stopping or attempt is None or attempt.over or attempt.stop_requested is not None:
        return None
    with store.reading() as look:
        over: dict[str, tuple[BudgetUse, ...]] = {
            spec.id: (replace(use, over_since=now),)
            for rule in stopping
            for spec in budgets.shares(look, rule.spec)
            if (use := budgets.state(look, spec, now)).spent > rule.config.amount
        }
        if not over:
            return None
        said = said_to_running(look.balance(view.id), policy, view, attempt, (), now, over)
    stops = {one.figures["stops_at"]: one.objection for one in said.verdicts if "stops_at" in one.figures}
    if not stops:
        return None
    first = min(stops)
    return replace(_outcome(view, Effect.STOPS_LATER, [stops[first]]), at=datetime.fromisoformat(first))
