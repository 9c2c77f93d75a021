"""A rehearsal of the reconciler's next pass: its controllers judge every open job in a transaction that is rolled back,
under the policies in force or under others.

No engine is called; only the decisions are recorded. The same code decides as in the reconciler.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import islice

from broker.app.billing import budgets
from broker.app.billing.budget_documents import BudgetLine
from broker.app.documents import Moment, Result
from broker.app.market.market import freshen, wants_sandbox
from broker.app.runs_root import run_folders
from broker.app.service import passes
from broker.app.service.passes import JudgeControllers
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
from broker.ledger.journal import StaleJobView
from broker.reconciler import decide
from broker.reconciler.admission.approvals import refuse
from broker.reconciler.admission.launch_check import Objection
from broker.reconciler.controller import Controller, JobContext
from broker.reconciler.controllers.enforcement import judge_running
from broker.reconciler.progress import billed_time
from broker.reconciler.settlement.batch import release_all
from broker.reconciler.visit_order import visit_order, waits_for_machine
from broker.store import Store

# Placing a job needs a plan, and other processes cannot write during a rehearsal, so only this many waiting jobs are
# checked, in queue order. Running jobs and requests need no plan, and all of them are checked.
MAX_WAITING_JOBS = 200
MAX_SECONDS = 5.0  # seconds of the wall clock after which a rehearsal ends; other writers give up after 15
_MAX_STEPS = 4  # of one job: request, approval, placement, and one spare


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


class ObjectingRule(Result):
    """A rule and its message; ``source``: file and line."""

    name: str
    kind: str
    code: str
    message: str
    source: str


class AffectedJob(Result):
    """A job that the next reconciler pass affects. ``rules``: those that cause it; ``pool``: of a start;
    ``approvers``: who is asked; ``at``: the time (UTC), if not at once."""

    job_id: str
    name: str
    user: str
    team: str | None
    effect: Effect
    rules: tuple[ObjectingRule, ...] = ()
    pool: str | None = None
    approvers: tuple[str, ...] = ()
    at: Moment | None = None

    @property
    def comparison_key(self) -> tuple[object, ...]:
        """The key by which two outcomes count as equal."""
        return self.effect, self.pool, self.approvers, {(rule.name, rule.code) for rule in self.rules}


class _Turns:
    """Rehearsals of this process, one after the other: each keeps other writers waiting, who then get as long, a second
    at most, before the next one."""

    def __init__(self) -> None:
        self._lock, self._next_at = threading.Lock(), 0.0

    @contextmanager
    def take(self) -> Iterator[None]:
        with self._lock:
            time.sleep(max(self._next_at - time.monotonic(), 0.0))
            began = time.monotonic()
            try:
                yield
            finally:
                ended = time.monotonic()
                self._next_at = ended + min(ended - began, 1.0)


_TURNS = _Turns()


@dataclass(frozen=True, slots=True)
class RehearsalResult:
    """The outcomes by job id. ``looked_at``: the open jobs that were checked; ``left_out``: how many were not.
    ``budgets``: each budget after the pass."""

    outcomes: Mapping[str, AffectedJob]
    looked_at: frozenset[str]
    left_out: int
    budgets: Sequence[BudgetLine]


def rehearse(
    broker: Broker, files: Mapping[str, str] | None = None, max_seconds: float = MAX_SECONDS
) -> RehearsalResult:
    """The outcomes of the next pass if these policy files were applied now (None: the policies in force). Changes
    nothing. ``max_seconds``: jobs not reached within this many seconds of the wall clock are left out. Raises
    `StoreProblem`, and `InvalidInput` for invalid files."""
    with broker.store.reading() as reader:
        jobs = [view.job for view in reader.unclosed()]
    for sandbox in {wants_sandbox(job) for job in jobs}:
        freshen(broker, sandbox=sandbox)  # before the transaction, so that polled prices are not rolled back
    with _TURNS.take(), broker.store.rehearsal() as store:
        if files is not None:
            store.activate_policy(files, by="", note="")
        rehearsal_broker = broker.over(store)
        budgets.queue_notices(rehearsal_broker)  # records which budgets are exceeded
        return _rehearse_jobs(rehearsal_broker, store, max_seconds)


def _rehearse_jobs(broker: Broker, store: Store, max_seconds: float) -> RehearsalResult:
    now, deadline = broker.clock.now(), time.monotonic() + max_seconds
    controllers = passes.make_controllers(broker, run_folders(broker), rest=0.0)
    with store.reading() as reader:
        views = visit_order(reader.unclosed(), now)
    waiting = {view.id for view in islice((view for view in views if waits_for_machine(view)), MAX_WAITING_JOBS)}
    selected = [view for view in views if not waits_for_machine(view) or view.id in waiting]
    job_rehearsal, policy = _JobRehearsal(store, controllers, now), broker.policy()
    outcomes: dict[str, AffectedJob] = {}
    checked_ids: list[str] = []
    for view in selected:
        if time.monotonic() >= deadline:
            break
        checked_ids.append(view.id)
        outcome = job_rehearsal.outcome(view)
        if outcome is None or outcome.effect is Effect.WARNS:
            outcome = _delayed_stop(store, policy, view, now) or outcome
        if outcome is not None:
            outcomes[view.id] = outcome
    return RehearsalResult(outcomes, frozenset(checked_ids), len(views) - len(checked_ids), budgets.budgets(broker))


@dataclass(frozen=True, slots=True)
class _JobRehearsal:
    """Takes the reconciler's steps for one job after another, without those that concern machines."""

    store: Store
    judging: JudgeControllers
    now: datetime

    def outcome(self, view: JobView) -> AffectedJob | None:
        """The outcome for the job; None if nothing happens."""
        first_outcome: AffectedJob | None = None
        for _ in range(_MAX_STEPS):
            cancels_launch = self._step(view)
            if cancels_launch:
                first_outcome = first_outcome or _outcome(view, Effect.GIVES_UP_LAUNCH, self._newest_denial(view))
            new_view = self._reload(view)
            if new_view is None or new_view.seq == view.seq:
                break
            first_outcome, view = first_outcome or self._newest_outcome(view, new_view), new_view
        if first_outcome is not None:
            return first_outcome
        return self._request_outcome(view) or self._warning(view)

    def _warning(self, view: JobView) -> AffectedJob | None:
        decision = self._newest_decision(view)
        if decision is None or decision.action is not ActionKind.CONTINUE:
            return None
        objections = [verdict.objection for verdict in decision.verdicts if verdict.warns]
        return _outcome(view, Effect.WARNS, objections) if objections else None

    def _step(self, view: JobView) -> bool:
        """Take the next steps; returns whether the policies cancelled a requested launch."""
        context = self._context(view)
        has_holds = any(balance.held for balance in context.money.values())
        for step in decide.next_steps(view, self.now, billed=billed_time(view, self.now), holds=has_holds):
            match step:
                case decide.Place():
                    self._reconcile(self.judging.placing, context)
                case decide.Submit(attempt):
                    return self._is_denied_now(view, attempt)
                case _:
                    self._release_money(view, step)
        for judge in self.judging.what_runs:
            if (new_view := self._reload(view)) is None or new_view.seq != view.seq:
                break
            self._reconcile(judge, context)
        return False

    def _release_money(self, view: JobView, step: decide.Step) -> None:
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

    def _reconcile(self, controller: Controller, context: JobContext) -> None:
        try:
            if controller.goes_by(context) is not None:
                controller.reconcile(context)
        except (BrokerError, StaleJobView):
            return  # the reconciler tries again in its next pass

    def _is_denied_now(self, view: JobView, attempt: AttemptView) -> bool:
        """Judge a requested launch again; returns whether the policies deny it now, so that the job is placed again."""
        try:
            result = self.judging.check(view, attempt)
        except (BrokerError, StaleJobView):
            return False
        if isinstance(result, Objection):
            with self.store.writing() as tx:
                attempt_ended = ev.AttemptEnded(cause=result.cause, evidence=result.why)
                tx.append(view.id, [(attempt.number, attempt_ended)], self.now)
        return isinstance(result, Objection) and result.cause is Cause.DENIED_BEFORE_LAUNCH

    def _context(self, view: JobView) -> JobContext:
        with self.store.reading() as reader:
            return JobContext(view, self.now, reader.balance(view.id))

    def _reload(self, view: JobView) -> JobView | None:
        with self.store.reading() as reader:
            return reader.job(view.id)

    def _newest_outcome(self, before: JobView, view: JobView) -> AffectedJob | None:
        """The outcome that the newest events of the job show; None for intermediate events."""
        with self.store.reading() as reader:
            new_events = [event.body for event in reader.events(view.id) if event.seq > before.seq]
        outcomes = [outcome for body in new_events if (outcome := _event_outcome(view, body)) is not None]
        return outcomes[0] if outcomes else None

    def _request_outcome(self, view: JobView) -> AffectedJob | None:
        """The outcome for an open request that nobody can approve any more, or that has other approvers now."""
        if view.asked is None:
            return None
        decision = self._newest_decision(view)
        if decision is None or decision.answer is Answer.ALLOW:
            return None
        objections = tuple(verdict.objection for verdict in decision.verdicts if verdict.answer is decision.answer)
        if decision.answer is Answer.DENY:
            return _outcome(view, Effect.CANNOT_BE_APPROVED, objections)
        approvers = {
            name for verdict in decision.verdicts if verdict.answer is Answer.ASK for name in verdict.approvers
        }
        previous = {name for question in view.asked.open for name in question.approvers}
        return None if approvers == previous else _outcome(view, Effect.ASKS, objections, approvers=sorted(approvers))

    def _newest_decision(self, view: JobView) -> Decision | None:
        """The job's decision of this pass, if any."""
        with self.store.reading() as reader:
            decision = next(iter(reader.decisions(job_id=view.id, limit=1)), None)
        return decision if decision is not None and decision.at >= self.now else None

    def _newest_denial(self, view: JobView) -> tuple[RuleObjection, ...]:
        decision = self._newest_decision(view)
        verdicts = decision.verdicts if decision else ()
        return tuple(verdict.objection for verdict in verdicts if verdict.answer is not Answer.ALLOW)


def _event_outcome(view: JobView, body: ev.EventBody) -> AffectedJob | None:
    match body:
        case ev.StopRequested(cause=Cause.MOVED):
            return _outcome(view, Effect.MOVES)
        case ev.StopRequested(reason=RulesDeny(objections=objections) | MoreMoneyDenied(objections=objections)):
            return _outcome(view, Effect.STOPS, objections)
        case ev.LaunchRequested():
            return _outcome(view, Effect.STARTS, pool=body.placement.offer.pool)
        case ev.Extended(max_cost=None, max_duration_seconds=None):
            return _outcome(view, Effect.GOES_ON)
        case ev.ApprovalAsked():
            rules = tuple(RuleObjection("", q.rule, "asks", q.because, q.source) for q in body.questions)
            return _outcome(view, Effect.ASKS, rules, approvers=sorted(body.approvers))
        case ev.ApprovalGiven(by=""):
            return _outcome(view, Effect.GRANTED)
        case (
            ev.Paused(reason=MoneyRefused(objections=objections))
            | ev.NothingFeasible(reason=PolicyDenies(objections=objections))
        ):
            return _outcome(view, Effect.REFUSED, objections)
        case _:
            return None


def _outcome(
    view: JobView, effect: Effect, rules: Iterable[RuleObjection] = (), **details: str | list[str] | datetime
) -> AffectedJob:
    return AffectedJob.from_parts(
        view,
        name=view.job.name,
        team=view.job.team,
        job_id=view.id,
        effect=effect,
        rules=[ObjectingRule.from_parts(rule, kind=rule.rule) for rule in rules],
        **details,
    )


def _delayed_stop(store: Store, policy: PolicySet, view: JobView, now: datetime) -> AffectedJob | None:
    """The outcome for a job that stops once the grace period of an exceeded budget is over."""
    attempt = view.latest
    stopping_rules = [rule for rule in budgets.budget_rules(policy) if rule.config.action == "stop"]
    if not stopping_rules or attempt is None or attempt.over or attempt.stop_requested is not None:
        return None
    with store.reading() as reader:
        exceeded: dict[str, tuple[BudgetUse, ...]] = {
            spec.id: (replace(use, over_since=now),)
            for rule in stopping_rules
            for spec in budgets.budget_parts(reader, rule.spec)
            if (use := budgets.current_use(reader, spec, now)).spent > rule.config.amount
        }
        if not exceeded:
            return None
        admission = judge_running(reader.balance(view.id), policy, view, attempt, (), now, exceeded)
    objection_by_time = {
        verdict.figures["stops_at"]: verdict.objection
        for verdict in admission.verdicts
        if "stops_at" in verdict.figures
    }
    if not objection_by_time:
        return None
    earliest = min(objection_by_time)
    return _outcome(view, Effect.STOPS_LATER, [objection_by_time[earliest]], at=datetime.fromisoformat(earliest))
