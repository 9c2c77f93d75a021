"""Submission: plan, judge, hold the money and record the intent in one transaction."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

from broker.app.jobs import arrays
from broker.app.jobs.after import begin_later, with_predecessors
from broker.app.jobs.disk_space import check_room
from broker.app.jobs.job_classes import KeptPlan, kept_plan, planned_by_class
from broker.app.jobs.jobs import EARLIER, refuse_second_session
from broker.app.jobs.nearest import denied, denied_everywhere, too_little, too_short
from broker.app.jobs.preview import NoFeasibleCapacity, PlanBasis, Preview, opened_by_policy, passing, strategy_decides
from broker.app.jobs.resume import with_resume_point
from broker.app.jobs.runs_root import agree
from broker.app.jobs.sealed_secrets import erase, missing_secrets, sealed
from broker.app.jobs.snapshots import check_still_there, with_snapshot
from broker.app.market.market import fresh_look, wants_sandbox
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import BrokerError, CommitUnknown, InvalidInput, NotAllowed, StoreProblem
from broker.core.events import events as ev
from broker.core.events.events import EventBody
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import NothingFits
from broker.core.job.jobs import Job
from broker.core.job.placements import Plan
from broker.core.job.reasons import Reason
from broker.core.market.offers import CapacityType
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import Answer, LiveAttempt
from broker.core.ports import PolicySet
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags
from broker.ledger.journal import Writing
from broker.reconciler.admission.admission import Admission, admit, still_free, switched_off
from broker.reconciler.admission.approvals import ask, of_ask, through_standing
from broker.reconciler.admission.facts import facts_of, occupied_in
from broker.reconciler.admission.records import decision_of, hold_entries, launch_request, waits_for_paid

if TYPE_CHECKING:
    from broker.store.jobs.journal import StoreWriting


Work = TypeVar("Work")


@dataclass(eq=False, slots=True)
class _Place(Generic[Work]):
    """The place of one thread in the queue of those that wait."""

    work: Work
    over: bool = False


class GroupCommit(Generic[Work]):
    """``do`` processes up to ``most`` pieces of work in one call. It may leave pieces undone; their threads then do
    these themselves. An exception of ``do`` is raised in the thread that called it. ``do`` may run in two threads at
    once."""

    def __init__(self, do: Callable[[Sequence[Work]], None], most: int) -> None:
        self._do, self._most = do, most
        self._changed = threading.Condition()
        self._waiting: list[_Place[Work]] = []
        self._taken = False

    def take(self, work: Work) -> None:
        """Wait until ``work`` was tried, by this thread or by another one together with its own work. The main thread
        does only its own work: Ctrl-C can interrupt it between any two lines, and the waiting threads would then wait
        forever."""
        if threading.current_thread() is threading.main_thread():
            self._do([work])
            return
        mine = _Place(work)
        with self._changed:
            self._waiting.append(mine)
            while self._taken and not mine.over:
                self._changed.wait()
            if mine.over:
                return
            self._waiting.remove(mine)
            some = [mine, *self._waiting[: self._most - 1]]
            del self._waiting[: self._most - 1]
            self._taken = True
        try:
            self._do([one.work for one in some])
        finally:
            with self._changed:
                self._taken = False
                for one in some:
                    one.over = True
                self._changed.notify_all()


class DearerNow(BrokerError):
    """The job now costs more than the accepted plan. ``preview``: the new plan. Nothing was submitted."""

    exit_code = 4

    def __init__(self, preview: Preview) -> None:
        super().__init__(
            "prices have risen: the job would cost more than the plan you agreed to", hint="check the new plan"
        )
        self.preview = preview


def submit(broker: Broker, job: Job, agreed: Preview | None = None, *, by: Actor) -> JobView:
    """Submit the job as ``by``: hold its money, and request its first launch, queue it, or ask for approval. If the
    strategy decides where and when the job starts, it is queued and the reconciler asks the strategy. A reconciler must
    run for the job to start: `broker.app.service.background.ensure`.

    Takes the snapshot of its files first, unless the job has one (`broker.app.jobs.snapshots.with_snapshot`). A job
    that comes after others holds no money: it is judged now, and again when it begins. ``agreed``: the plan that the
    submitter accepted. Not idempotent: each call submits one job.

    Raises, and then no job exists: `DearerNow`; `NoFeasibleCapacity` (exit 4); `NotAllowed` (exit 3; the decision is
    recorded); `InvalidInput` for a `max_cost` that does not pay for a start, a missing secret, a run folder that is not
    writable, or one in another place than those of open jobs; `StoreProblem` for a full disk; `Unreachable`.
    """
    if job.seal is None and (missing := missing_secrets(job)):
        raise InvalidInput(
            f"secrets not in the environment: {', '.join(missing)}", hint="export them, then submit again"
        )
    check_room(broker, job)
    job = with_predecessors(broker, with_resume_point(broker, job), by=by)
    job = sealed(broker, with_snapshot(broker, job, by=by), by=by)
    try:
        if job.snapshot is None:
            return _admitted(broker, job, agreed, by)
        with broker.store.using_snapshots():
            check_still_there(broker, job)
            return _admitted(broker, job, agreed, by)
    except (NoFeasibleCapacity, DearerNow, NotAllowed, InvalidInput):
        with suppress(BrokerError):  # nobody can use an orphaned seal, but it should not stay
            erase(broker, job)
        raise


def record_refusal(broker: Broker, seen: Preview) -> None:
    """Record the decision that refused the job of a preview, with its inputs, for later replay. If the policies left no
    placement, the placements that they rejected are judged. Records nothing if the policies allow the job by now."""
    if not seen.plan.placements:
        seen = replace(seen, plan=opened_by_policy(broker, seen))
    if not seen.plan.placements:
        return
    with broker.store.writing() as tx:
        policy, now = broker.policy(tx), broker.clock.now()
        live = occupied_in(tx, policy, (placement.offer for placement in seen.plan.placements))
        admission, record = _judged(seen, policy, live, now, tx)
        off = switched_off(policy, admission.action)
        if off is not None:
            record = replace(record, answer=off.answer, verdicts=(*record.verdicts, off))
        if record.answer is Answer.DENY:
            tx.record(record)


def new_job_id(name: str, longest: int = 24) -> str:
    """A new random id that shows the job's name, ``longest`` characters of it: a–z, 0–9 and dashes, 7 characters more,
    so that every engine accepts it as a name, also with an attempt number appended."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:longest].rstrip("-") or "job"
    if not slug[0].isalpha():
        slug = f"j-{slug}"[:longest].rstrip("-")
    suffix = "".join(secrets.choice("abcdefghjkmnpqrstuvwxyz23456789") for _ in range(6))
    return f"{slug}-{suffix}"


def _admitted(broker: Broker, job: Job, agreed: Preview | None, by: Actor) -> JobView:
    """Plan and admit; again if policies or free machines changed in between. Raises as `submit`."""
    kept = kept_plan(broker, job, by)
    while True:
        if kept is not None:
            seen, policy = kept.seen, kept.policy
        else:
            with fresh_look(broker, sandbox=wants_sandbox(job)) as look:
                look.plan_stamp()  # first, because it answers the next two queries as well
                agree(broker, look)
                policy = broker.policy(look)
                seen = planned_by_class(broker, job, by, PlanBasis(policy, look, broker.clock.now()))
        if not seen.plan.placements:
            if seen.exit_code == 4:
                raise NoFeasibleCapacity(seen)
            record_refusal(broker, seen)
            raise denied_everywhere(seen)
        if seen.needs is not None:
            raise too_short(seen.job, seen.needs)
        # Planning is slow and happens outside the transaction, which checks again what may have changed since.
        done = _in_turn(_Submitting(broker, seen, policy, agreed, by, kept))
        if isinstance(done, JobView):
            return done
        if done is not None:
            with broker.store.reading() as look:  # the search for alternatives must not hold up other writers
                raise denied(done, passing(broker, seen, done, PlanBasis(policy, look, broker.clock.now())))
        kept = None


@dataclass(slots=True)
class _Submitting:
    """A job to be admitted by a plan. ``kept``: the plan if it was made for another job. ``done``: the result;
    ``refused``: why it cannot be submitted; neither is set before it was ``tried``."""

    broker: Broker
    seen: Preview
    policy: PolicySet
    agreed: Preview | None
    by: Actor
    kept: KeptPlan | None
    tried: bool = False
    done: JobView | Admission | None = None
    refused: BrokerError | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it records a single job, and raises only before it writes anything."""
        return self.seen.job.array is None and not self.seen.job.after

    @property
    def beside_others(self) -> bool:
        """Whether other jobs may be admitted in the same transaction. Then rules read nothing that earlier ones wrote
        in it, except money and running attempts."""
        return self.is_plain and self.seen.job.session is None and not self.policy.asks


_MOST = 32  # submissions in one transaction
_turns: WeakKeyDictionary[Broker, GroupCommit[_Submitting]] = WeakKeyDictionary()


def _in_turn(asked: _Submitting) -> JobView | Admission | None:
    """As `_admit`, in a transaction of its own, or in one with the jobs of other threads that wait to write."""
    if asked.beside_others:
        turns = _turns.get(asked.broker) or _turns.setdefault(asked.broker, GroupCommit(_together, _MOST))
        turns.take(asked)
    if not asked.tried:
        _together([asked])
    if asked.refused is not None:
        raise asked.refused
    return asked.done


def _together(some: Sequence[_Submitting]) -> None:
    """Admit these jobs in one transaction, each judged with what those before it hold. Several only if each is plain.
    If the transaction fails before its commit, none of several counts as tried, so that each is tried alone."""
    committing = False
    try:
        with some[0].broker.store.writing() as tx:
            with tx.at_once() if some[0].is_plain else nullcontext():
                for one in some:
                    try:
                        one.done = _admit(one, tx)
                    except (DearerNow, InvalidInput) as refused:
                        if not one.is_plain:  # it may have written something
                            raise
                        one.refused = refused
            for one in some:  # before the commit, so that no job is tried again, whatever ends this thread afterwards
                one.tried = True
            committing = True
    except BaseException as error:
        unknown = committing and (isinstance(error, CommitUnknown) or not isinstance(error, StoreProblem))
        for one in some:
            one.tried, one.refused = unknown, _lost(error) if unknown else None
        if not isinstance(error, Exception) or (len(some) == 1 and not unknown):
            raise


def _lost(error: BaseException) -> CommitUnknown:
    """The error for a commit with an unknown outcome, after which the job may or may not be recorded."""
    why = f": {error}" if isinstance(error, BrokerError) else ""
    return CommitUnknown(
        f"the transaction was interrupted at its commit{why}", hint="look at `gpubroker jobs list` first"
    )


def _admit(asked: _Submitting, tx: StoreWriting) -> JobView | Admission | None:
    """Judge by the money and machines in this transaction. Returns the job, with its money held and its first events
    recorded; or the refusal, recorded; or None if a new plan is needed: policies or offers have changed, its machines
    were taken meanwhile, or a new plan could have a better result than the kept one. Raises `InvalidInput` and
    `DearerNow` as `submit` does."""
    broker, seen, policy, kept = asked.broker, asked.seen, asked.policy, asked.kept
    if kept is not None and tx.plan_stamp() != kept.stamp:
        return None
    if broker.policy(tx).version != policy.version:
        return None
    if seen.job.session is not None:  # again in this transaction: two may be opened at once
        refuse_second_session(seen.job, tx.jobs(name=seen.job.name, users=[asked.by.identity], limit=EARLIER))
    now, job = broker.clock.now(), seen.job
    placed = (placement.offer for placement in seen.plan.placements)
    live = occupied_in(tx, policy, placed if kept is None else seen.offers)  # a plan from memory: is it outdated?
    admission, record = _judged(seen, policy, live, now, tx)
    if not seen.waits and not job.after and not still_free(admission.placement, seen.offers, live):
        return None
    if kept is not None and kept.is_outdated(admission, live):
        return None
    if admission.short_of is not None:
        raise too_little(admission)
    if asked.agreed is not None and _dearer(admission, asked.agreed.admission):
        raise DearerNow(replace(seen, admission=admission))
    if admission.answer is Answer.DENY:
        tx.record(record)
        return admission
    if job.array is not None and admission.answer is Answer.ASK:
        raise arrays.too_many(0, admission, job)
    if job.after:
        later = new_job_id(job.name) if job.array is None else new_job_id(job.name, arrays.LONGEST_SLUG)
        tx.record(replace(record, job_id=later))
        return begin_later(tx, later, submission(seen, now), broker)
    if job.array is not None:
        array_id = new_job_id(job.name, arrays.LONGEST_SLUG)
        return arrays.begin(tx, array_id, submission(seen, now), seen.plan, policy, record, now, waits=seen.waits)
    job_id = new_job_id(job.name)
    tags = Tags(
        job_id=job_id,
        user=seen.by.identity,
        team=job.team,
        project=job.project,
        workload=job.workload.value,
        environment=job.environment,
    )
    record = of_ask(record, now) if admission.answer is Answer.ASK else record
    given = through_standing(tx, admission, job_id)
    tx.record(replace(record, job_id=job_id, attempt=1))
    tx.post(hold_entries(tags, {}, admission.burns, Movement.HOLD, 1))
    return tx.append(job_id, _first_events(seen, policy, admission, job_id, given, now), now)


def _judged(
    seen: Preview, policy: PolicySet, live: Sequence[LiveAttempt], now: datetime, tx: Writing
) -> tuple[Admission, Decision]:
    """The policies' verdict on a plan in this transaction, and its record."""
    facts_for = facts_of(tx, policy, now, live)
    admission = admit(seen.job, seen.by.identity, seen.plan, policy, facts_for, max_duration=seen.max_duration, now=now)
    return admission, decision_of(admission, seen.plan, policy, facts_for(admission.action))


def _dearer(now: Admission, agreed: Admission | None) -> bool:
    """Whether more money would be held than was agreed to, or the machines cost more per hour."""
    if agreed is None:
        return True
    more_held = any(amount > agreed.money.get(kind, Money.ZERO) for kind, amount in now.money.items())
    return more_held or now.placement.rate > agreed.placement.rate


def _first_events(
    seen: Preview,
    policy: PolicySet,
    admission: Admission,
    job_id: str,
    given: Sequence[ev.ApprovalGiven],
    now: datetime,
) -> list[tuple[int | None, EventBody]]:
    submitted = submission(seen, now)
    first: list[tuple[int | None, EventBody]] = [(None, submitted), *((None, body) for body in given)]
    if admission.answer is Answer.ASK:
        return [*first, (None, ask(admission, now))]
    if seen.waits:
        busy = NothingFits(counts={str(Reason.TOO_FEW_MACHINES): 1})
        return [*first, (None, ev.NothingFeasible(reason=waits_for_paid(seen.waiting) if seen.waiting else busy))]
    if strategy_decides(seen, policy):
        return first  # the reconciler asks the strategy where and when
    return [*first, (1, launch_request(job_id, 1, admission.placement))]


def submission(seen: Preview, now: datetime) -> ev.Submitted:
    """The first event of the job that a preview shows."""
    return ev.Submitted(
        job=seen.job,
        user=seen.by.identity,
        deadline=seen.job.deadline_at(now),
        max_duration_seconds=seen.max_duration.total_seconds(),
        work_seconds=seen.plan.remaining.total_seconds() if seen.plan.remaining else None,
        on_demand=_baseline(seen.plan),
    )


def _baseline(plan: Plan) -> ev.Baseline | None:
    """The cheapest on-demand placement, against which savings are measured."""
    cheapest = plan.cheapest(CapacityType.ON_DEMAND)
    if cheapest is None:
        return None
    return ev.Baseline(pool=cheapest.offer.pool, rate=cheapest.rate, throughput=cheapest.throughput)
