"""What the reconciler's next look would do to jobs, found by doing it: its own controllers judge every open job in one
transaction that is undone, under the policies in force or under others.

Nothing is launched, stopped or asked of an engine: only what is decided is seen. So whatever the gate and the judges of
what runs do, a rehearsal does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import islice

from broker.app.billing import budgets
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
from broker.core.policy.policy import ActionKind, Answer, BudgetUse, Verdict
from broker.core.ports import PolicySet
from broker.ledger.journal import NoLongerCurrent
from broker.reconciler import decide
from broker.reconciler.admission.approvals import refuse
from broker.reconciler.admission.launch_check import Objection
from broker.reconciler.controller import Controller, JobContext
from broker.reconciler.controllers.enforcement import said_to_running
from broker.reconciler.loop import release_all
from broker.reconciler.progress import billed_time
from broker.reconciler.visit_order import in_turn, waits
from broker.store import Store

# Placing a job takes a plan, and nobody else can write while a rehearsal lasts: jobs that wait are looked at up to this
# number, in their turn. What runs or is asked takes no plan, and is looked at in full.
MOST_WAITING = 200
# A look ends after so many seconds of the wall clock, wherever it is: others give up writing after 15.
LONGEST = 5.0
_MOST_STEPS = 4  # of one job: asked, granted, placed, and once more


class Effect(StrEnum):
    """What happens to a job at the next look."""

    STOPS = "stops"  # checkpoint first
    STOPS_LATER = "stops_later"  # after the grace of an exceeded budget
    MOVES = "moves"
    GOES_ON = "goes_on"  # it was stopped by a policy, and is placed again
    STARTS = "starts"
    GIVES_UP_LAUNCH = "gives_up_launch"  # requested, and not allowed any more: it is placed anew
    REFUSED = "refused"  # it waits, and the policies let it start nowhere
    GRANTED = "granted"  # nobody is asked any more
    ASKS = "asks"  # its owner waits for an approval from now on, or for those of others
    CANNOT_BE_APPROVED = "cannot_be_approved"
    WAITS = "waits"  # it would have started, and does not
    WARNS = "warns"  # it runs on; a rule that only warns would stop it
    LET_GO = "let_go"  # the policies in force would stop it, and these do not


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What happens to one job. ``rules``: whose doing it is, each with its place; ``where``: the pool of a start;
    ``asks``: who may approve; ``at``: when (UTC), where it is not at once."""

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
        """What two outcomes have in common that are the same thing."""
        return self.effect, self.where, self.asks, frozenset((one.name, one.code) for one in self.rules)


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What would happen to which job, by its id. ``looked_at``: the open jobs that were; ``left_out``: how many were
    not. ``budgets``: how each budget stands then."""

    outcomes: Mapping[str, JobOutcome]
    looked_at: frozenset[str]
    left_out: int
    budgets: Sequence[budgets.BudgetLine]


def rehearse(broker: Broker, files: Mapping[str, str] | None = None, longest: float = LONGEST) -> Rehearsed:
    """What the next look does, under these policy files (None: those in force) as if they were applied now. Changes
    nothing. ``longest``: jobs whose turn comes after so many seconds are left out. Raises
    `StoreProblem`, and `InvalidInput` for files that are wrong."""
    with broker.store.reading() as look:
        jobs = [view.job for view in look.unclosed()]
    for sandbox in {wants_sandbox(job) for job in jobs}:
        freshen(broker, sandbox=sandbox)  # what is polled is not undone
    with broker.store.rehearsal() as store:
        if files is not None:
            store.activate_policy(files, by="", note="")
        tried = broker.over(store)
        budgets.check(tried)  # a budget that is exceeded is known to be so from now on
        return _look(tried, store, longest)


def _look(broker: Broker, store: Store, longest: float) -> Rehearsed:
    now, ends = broker.clock.now(), time.monotonic() + longest
    judging = reconciler_setup.judging(broker, reconciler_setup.run_folders(broker), rest=0.0)
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
    """One look at one job after the other, as the reconciler takes it, but for what concerns machines."""

    store: Store
    judging: Judging
    now: datetime

    def outcome(self, view: JobView) -> JobOutcome | None:
        """What happens to the job; None where nothing does."""
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
        """Take the next steps; whether a launch was given up for what the policies say."""
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
        """Take a step by which a job gives back money, so that others find it."""
        with self.store.writing() as tx:
            match step:
                case decide.Pause(reason):
                    tx.append(view.id, [(None, ev.Paused(reason=reason))], self.now)
                case decide.Expire():
                    refuse(tx, view, self.now)
                case decide.End(state, ending):
                    tx.append(view.id, [(None, ev.JobEnded(state=state, reason=ending))], self.now)
                case decide.Release() | decide.Close():
                    release_all(tx, view, self.now)
                case _:
                    return

    def _asked(self, controller: Controller, about: JobContext) -> None:
        try:
            if controller.goes_by(about) is not None:
                controller.reconcile(about)
        except (BrokerError, NoLongerCurrent):
            return  # the next look tries it again

    def _checked(self, view: JobView, attempt: AttemptView) -> bool:
        """Have a requested launch judged again; whether the policies deny it by now: then the job is placed anew."""
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
        """What the newest events of the job come to; None where they are on the way to something."""
        with self.store.reading() as look:
            fresh = [event.body for event in look.events(view.id) if event.seq > before.seq]
        found = [outcome for body in fresh if (outcome := _of_event(view, body)) is not None]
        return found[0] if found else None

    def _denied_request(self, view: JobView) -> JobOutcome | None:
        """What waits for an approval that by now nobody can give, or that others are asked for."""
        if view.asked is None:
            return None
        newest = self._newest(view)
        if newest is None or newest.answer is Answer.ALLOW:
            return None
        said = _objections(newest.verdicts, newest.answer)
        if newest.answer is Answer.DENY:
            return _outcome(view, Effect.CANNOT_BE_APPROVED, said)
        whom = {name for verdict in newest.verdicts if verdict.answer is Answer.ASK for name in verdict.approvers}
        before = {name for question in view.asked.open for name in question.approvers}
        return None if whom == before else replace(_outcome(view, Effect.ASKS, said), asks=tuple(sorted(whom)))

    def _newest(self, view: JobView) -> Decision | None:
        """What was said to the job just now, if anything was."""
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


def _objections(verdicts: Iterable[Verdict], answer: Answer) -> tuple[RuleObjection, ...]:
    return tuple(verdict.objection for verdict in verdicts if verdict.answer is answer)


def _stops_later(store: Store, policy: PolicySet, view: JobView, now: datetime) -> JobOutcome | None:
    """Whether the job stops once the grace of a budget is over that is exceeded already."""
    attempt = view.latest
    stopping = [rule for rule in budgets.rules_of(policy) if rule.config.action == "stop"]
    if not stopping or attempt is None or attempt.over or attempt.stop_requested is not None:
        return None
    with store.reading() as look:
        over: dict[str, tuple[BudgetUse, ...]] = {
            rule.spec.id: (replace(use, over_since=now),)
            for rule in stopping
            if (use := budgets.state(look, rule.spec, now)).spent > rule.config.amount
        }
        if not over:
            return None
        said = said_to_running(look.balance(view.id), policy, view, attempt, (), now, over)
    stops = {one.figures["stops_at"]: one.objection for one in said.verdicts if "stops_at" in one.figures}
    if not stops:
        return None
    first = min(stops)
    return replace(_outcome(view, Effect.STOPS_LATER, [stops[first]]), at=datetime.fromisoformat(first))
