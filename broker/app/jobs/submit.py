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

from broker.app.jobs import arrays, background
from broker.app.jobs.alternatives import denial_error, max_cost_error, max_duration_error, no_placement_error
from broker.app.jobs.jobs import MAX_EARLIER_SESSIONS, refuse_second_session
from broker.app.jobs.plan_cache import ReusablePlan, plan_by_class, reusable_plan
from broker.app.jobs.predecessors import record_dependent_job, resolve_predecessors
from broker.app.jobs.preview import (
    NoFeasibleCapacity,
    PlanBasis,
    Preview,
    passing_alternatives,
    plan_without_policies,
    strategy_decides,
    submission,
)
from broker.app.jobs.resume import complete_resume_point
from broker.app.jobs.sealed_secrets import erase, missing_secrets, seal_secrets
from broker.app.jobs.snapshots import check_snapshot_exists, take_snapshot
from broker.app.market.market import fresh_reading, wants_sandbox
from broker.app.runs_root import check_or_claim, check_space
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import BrokerError, CommitUnknown, InvalidInput, NotAllowed, StoreProblem
from broker.core.events import events as ev
from broker.core.events.events import EventBody
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import NothingFits
from broker.core.job.jobs import Job
from broker.core.job.reasons import Reason
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import Answer, LiveAttempt
from broker.core.ports import PolicySet
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags
from broker.reconciler.admission.admission import Admission, admit, is_still_free, reference_price_denial
from broker.reconciler.admission.approvals import approve_by_standing_grants, ask, mark_as_request
from broker.reconciler.admission.facts import facts_of, occupied_in
from broker.reconciler.admission.records import decision_of, hold_entries, launch_request, waits_for_paid
from broker.store.jobs.journal import StoreWriter

if TYPE_CHECKING:
    from broker.store.jobs.journal import StoreWriter


WorkT = TypeVar("WorkT")


@dataclass(eq=False, slots=True)
class _WaitingWork(Generic[WorkT]):
    """The place of one thread in the queue of those that wait."""

    work: WorkT
    over: bool = False


class GroupCommit(Generic[WorkT]):
    """``do`` processes up to ``max_batch`` pieces of work in one call. It may leave pieces undone; their threads then
    do these themselves. An exception of ``do`` is raised in the thread that called it. ``do`` may run in two threads at
    once."""

    def __init__(self, do: Callable[[Sequence[WorkT]], None], max_batch: int) -> None:
        self._do, self._most = do, max_batch
        self._changed = threading.Condition()
        self._waiting: list[_WaitingWork[WorkT]] = []
        self._taken = False

    def take(self, work: WorkT) -> None:
        """Wait until ``work`` was tried, by this thread or by another one together with its own work. The main thread
        does only its own work: Ctrl-C can interrupt it between any two lines, and the waiting threads would then wait
        forever."""
        if threading.current_thread() is threading.main_thread():
            self._do([work])
            return
        own = _WaitingWork(work)
        with self._changed:
            self._waiting.append(own)
            while self._taken and not own.over:
                self._changed.wait()
            if own.over:
                return
            self._waiting.remove(own)
            batch = [own, *self._waiting[: self._most - 1]]
            del self._waiting[: self._most - 1]
            self._taken = True
        try:
            self._do([place.work for place in batch])
        finally:
            with self._changed:
                self._taken = False
                for place in batch:
                    place.over = True
                self._changed.notify_all()


class DearerNow(BrokerError):
    """The job now costs more than the accepted plan. ``preview``: the new plan. Nothing was submitted."""

    exit_code = 4

    def __init__(self, preview: Preview) -> None:
        super().__init__(
            "prices have risen: the job would cost more than the plan you agreed to", hint="check the new plan"
        )
        self.preview = preview


def submit(broker: Broker, job: Job, agreed_preview: Preview | None = None, *, by: Actor) -> JobView:
    """Submit the job as ``by``: hold its money, and request its first launch, queue it, or ask for approval. If the
    strategy decides where and when the job starts, it is queued and the reconciler asks the strategy. A reconciler must
    run for the job to start: `broker.app.jobs.background.ensure`.

    Takes the snapshot of its files first, unless the job has one (`broker.app.jobs.snapshots.take_snapshot`). A job
    that comes after others holds no money: it is judged now, and again when it begins. ``agreed_preview``: the plan
    that the submitter accepted. Not idempotent: each call submits one job.

    Raises, and then no job exists: `DearerNow`; `NoFeasibleCapacity` (exit 4); `NotAllowed` (exit 3; the decision is
    recorded); `InvalidInput` for a job that the running leader cannot read, a `max_cost` that does not pay for a
    start, a missing secret, a run folder that is not writable, or one in another place than those of open jobs;
    `StoreProblem` for a full disk; `Unreachable`.
    """
    if job.seal is None and (missing := missing_secrets(job)):
        raise InvalidInput(
            f"secrets not in the environment: {', '.join(missing)}", hint="export them, then submit again"
        )
    if objection := background.leader_objection(broker, job):
        raise InvalidInput(objection, where=job.name, hint="upgrade that one and start it again, or leave this out")
    check_space(broker, job)
    job = resolve_predecessors(broker, complete_resume_point(broker, job), by=by)
    job = seal_secrets(broker, take_snapshot(broker, job, by=by), by=by)
    try:
        if job.snapshot is None:
            return _plan_and_admit(broker, job, agreed_preview, by)
        with broker.store.using_snapshots():
            check_snapshot_exists(broker, job)
            return _plan_and_admit(broker, job, agreed_preview, by)
    except (NoFeasibleCapacity, DearerNow, NotAllowed, InvalidInput):
        with suppress(BrokerError):  # nobody can use an orphaned seal, but it should not stay
            erase(broker, job)
        raise


def record_refusal(broker: Broker, preview: Preview) -> None:
    """Record the decision that refused the job of a preview, with its inputs, for later replay. If the policies left no
    placement, the placements that they rejected are judged. Records nothing if the policies allow the job by now."""
    if not preview.plan.placements:
        preview = replace(preview, plan=plan_without_policies(broker, preview))
    if not preview.plan.placements:
        return
    with broker.store.writing() as tx:
        policy, now = broker.policy(tx), broker.clock.now()
        live = occupied_in(tx, policy, (placement.offer for placement in preview.plan.placements))
        admission, record = _judge(preview, policy, live, now, tx)
        off_verdict = reference_price_denial(policy, admission.action)
        if off_verdict is not None:
            record = replace(record, answer=off_verdict.answer, verdicts=(*record.verdicts, off_verdict))
        if record.answer is Answer.DENY:
            tx.record(record)


def new_job_id(name: str, max_length: int = 24) -> str:
    """A new random id that shows the job's name, ``max_length`` characters of it, and 7 characters more: a–z, 0–9
    and dashes, so that every engine accepts it as a name, also with an attempt number appended. What follows the name
    begins with a letter: ``sweep-2`` is the second task of ``sweep``, never the beginning of its id."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:max_length].rstrip("-") or "job"
    if not slug[0].isalpha():
        slug = f"j-{slug}"[:max_length].rstrip("-")
    letters = "abcdefghjkmnpqrstuvwxyz"
    suffix = secrets.choice(letters) + "".join(secrets.choice(letters + "23456789") for _ in range(5))
    return f"{slug}-{suffix}"


def _plan_and_admit(broker: Broker, job: Job, agreed_preview: Preview | None, by: Actor) -> JobView:
    """Plan and admit; again if policies or free machines changed in between. Raises as `submit`."""
    reusable = reusable_plan(broker, job, by)
    while True:
        if reusable is not None:
            preview, policy = reusable.seen, reusable.policy
        else:
            with fresh_reading(broker, sandbox=wants_sandbox(job)) as reader:
                reader.plan_stamp()  # first, because it answers the next two queries as well
                check_or_claim(broker, reader)
                policy = broker.policy(reader)
                preview = plan_by_class(broker, job, by, PlanBasis(policy, reader, broker.clock.now()))
        if not preview.plan.placements:
            if preview.exit_code == 4:
                raise NoFeasibleCapacity(preview)
            record_refusal(broker, preview)
            raise no_placement_error(preview.plan, preview.offers)
        if preview.needs is not None:
            raise max_duration_error(preview.job, preview.needs)
        # Planning is slow and happens outside the transaction, which checks again what may have changed since.
        outcome = _admit_grouped(_PendingSubmission(broker, preview, policy, agreed_preview, by, reusable))
        if isinstance(outcome, JobView):
            return outcome
        if outcome is not None:
            with broker.store.reading() as reader:  # the search for alternatives must not hold up other writers
                raise denial_error(
                    outcome,
                    passing_alternatives(broker, preview, outcome, PlanBasis(policy, reader, broker.clock.now())),
                )
        reusable = None


@dataclass(slots=True)
class _PendingSubmission:
    """A job to be admitted by a plan. ``kept``: the plan if it was made for another job. ``done``: the result;
    ``refused``: why it cannot be submitted; neither is set before it was ``tried``."""

    broker: Broker
    seen: Preview
    policy: PolicySet
    agreed: Preview | None
    by: Actor
    kept: ReusablePlan | None
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


_MAX_BATCH = 32  # submissions in one transaction
_group_commits: WeakKeyDictionary[Broker, GroupCommit[_PendingSubmission]] = WeakKeyDictionary()


def _admit_grouped(pending: _PendingSubmission) -> JobView | Admission | None:
    """As `_admit`, in a transaction of its own, or in one with the jobs of other threads that wait to write."""
    if pending.beside_others:
        turns = _group_commits.get(pending.broker) or _group_commits.setdefault(
            pending.broker, GroupCommit(_admit_together, _MAX_BATCH)
        )
        turns.take(pending)
    if not pending.tried:
        _admit_together([pending])
    if pending.refused is not None:
        raise pending.refused
    return pending.done


def _admit_together(batch: Sequence[_PendingSubmission]) -> None:
    """Admit these jobs in one transaction, each judged with what those before it hold. Several only if each is plain.
    If the transaction fails before its commit, none of several counts as tried, so that each is tried alone."""
    committing = False
    try:
        with batch[0].broker.store.writing() as tx:
            with tx.at_once() if batch[0].is_plain else nullcontext():
                for pending in batch:
                    try:
                        pending.done = _admit(pending, tx)
                    except (DearerNow, InvalidInput) as refusal:
                        if not pending.is_plain:  # it may have written something
                            raise
                        pending.refused = refusal
            for (
                pending
            ) in batch:  # before the commit, so that no job is tried again, whatever ends this thread afterwards
                pending.tried = True
            committing = True
    except BaseException as error:
        outcome_unknown = committing and (isinstance(error, CommitUnknown) or not isinstance(error, StoreProblem))
        for pending in batch:
            pending.tried, pending.refused = outcome_unknown, _commit_unknown(error) if outcome_unknown else None
        if not isinstance(error, Exception) or (len(batch) == 1 and not outcome_unknown):
            raise


def _commit_unknown(error: BaseException) -> CommitUnknown:
    """The error for a commit with an unknown outcome, after which the job may or may not be recorded."""
    detail = f": {error}" if isinstance(error, BrokerError) else ""
    return CommitUnknown(
        f"the transaction was interrupted at its commit{detail}", hint="look at `gpubroker jobs list` first"
    )


def _admit(pending: _PendingSubmission, tx: StoreWriter) -> JobView | Admission | None:
    """Judge by the money and machines in this transaction. Returns the job, with its money held and its first events
    recorded; or the refusal, recorded; or None if a new plan is needed: policies or offers have changed, its machines
    were taken meanwhile, or a new plan could have a better result than the kept one. Raises `InvalidInput` and
    `DearerNow` as `submit` does."""
    broker, preview, policy, reusable = pending.broker, pending.seen, pending.policy, pending.kept
    if reusable is not None and tx.plan_stamp() != reusable.stamp:
        return None
    if broker.policy(tx).version != policy.version:
        return None
    if preview.job.session is not None:  # again in this transaction: two may be opened at once
        refuse_second_session(
            preview.job, tx.jobs(name=preview.job.name, users=[pending.by.identity], limit=MAX_EARLIER_SESSIONS)
        )
    now, job = broker.clock.now(), preview.job
    placed_offers = (placement.offer for placement in preview.plan.placements)
    live = occupied_in(
        tx, policy, placed_offers if reusable is None else preview.offers
    )  # a plan from memory: is it outdated?
    admission, record = _judge(preview, policy, live, now, tx)
    if not preview.waits and not job.after and not is_still_free(admission.placement, preview.offers, live):
        return None
    if reusable is not None and reusable.is_outdated(admission, live):
        return None
    if admission.short_of is not None:
        raise max_cost_error(admission)
    if pending.agreed is not None and _is_dearer(admission, pending.agreed.admission):
        raise DearerNow(replace(preview, admission=admission))
    if admission.answer is Answer.DENY:
        tx.record(record)
        return admission
    if job.array is not None and admission.answer is Answer.ASK:
        raise arrays.too_many(0, admission, job)
    if job.after:
        dependent_id = new_job_id(job.name) if job.array is None else new_job_id(job.name, arrays.MAX_SLUG_LENGTH)
        tx.record(replace(record, job_id=dependent_id))
        return record_dependent_job(tx, dependent_id, submission(preview, now), broker)
    if job.array is not None:
        array_id = new_job_id(job.name, arrays.MAX_SLUG_LENGTH)
        return arrays.begin(
            tx, array_id, submission(preview, now), preview.plan, policy, record, now, waits=preview.waits
        )
    job_id = new_job_id(job.name)
    tags = Tags(
        job_id=job_id,
        user=preview.by.identity,
        team=job.team,
        project=job.project,
        workload=job.workload.value,
        environment=job.environment,
    )
    record = mark_as_request(record, now) if admission.answer is Answer.ASK else record
    grant_events = approve_by_standing_grants(tx, admission, job_id)
    tx.record(replace(record, job_id=job_id, attempt=1))
    tx.post(hold_entries(tags, {}, admission.burns, Movement.HOLD, 1))
    return tx.append(job_id, _first_events(preview, policy, admission, job_id, grant_events, now), now)


def _judge(
    preview: Preview, policy: PolicySet, live: Sequence[LiveAttempt], now: datetime, tx: StoreWriter
) -> tuple[Admission, Decision]:
    """The policies' verdict on a plan in this transaction, and its record."""
    facts_for = facts_of(tx, policy, now, live)
    admission = admit(
        preview.job, preview.by.identity, preview.plan, policy, facts_for, max_duration=preview.max_duration, now=now
    )
    return admission, decision_of(admission, preview.plan, policy, facts_for(admission.action))


def _is_dearer(now: Admission, agreed: Admission | None) -> bool:
    """Whether more money would be held than was agreed to, or the machines cost more per hour."""
    if agreed is None:
        return True
    more_held = any(amount > agreed.money.get(kind, Money.ZERO) for kind, amount in now.money.items())
    return more_held or now.placement.rate > agreed.placement.rate


def _first_events(
    preview: Preview,
    policy: PolicySet,
    admission: Admission,
    job_id: str,
    grant_events: Sequence[ev.ApprovalGiven],
    now: datetime,
) -> list[tuple[int | None, EventBody]]:
    submission_event = submission(preview, now)
    events: list[tuple[int | None, EventBody]] = [(None, submission_event), *((None, body) for body in grant_events)]
    if admission.answer is Answer.ASK:
        return [*events, (None, ask(admission, now))]
    if preview.waits:
        busy = NothingFits(counts={str(Reason.TOO_FEW_MACHINES): 1})
        return [
            *events,
            (None, ev.NothingFeasible(reason=waits_for_paid(preview.waiting) if preview.waiting else busy)),
        ]
    if strategy_decides(preview, policy):
        return events  # the reconciler asks the strategy where and when
    return [*events, (1, launch_request(job_id, 1, admission.placement))]
