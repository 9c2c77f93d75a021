"""Submitting an array: its first tasks, as many as its `parallel` says, begin together or not at all."""

from dataclasses import replace
from datetime import datetime, timedelta

from broker.core.errors import NotAllowed
from broker.core.events import events as ev
from broker.core.events.views import JobView
from broker.core.job.arrays import JobArray
from broker.core.job.jobs import Job
from broker.core.job.placements import Plan
from broker.core.market.offers import MoneyKind
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import Answer
from broker.core.ports import PolicySet
from broker.core.values.money import Money
from broker.reconciler.admission.admission import Admission, whole_hold
from broker.reconciler.controllers.arrays import StartedTasks, room_for, start_tasks
from broker.store.jobs.journal import StoreWriter
from broker.store.store import Store

MAX_SLUG_LENGTH = 22  # of an array's id, to which the tasks' numbers are appended


def begin(
    tx: StoreWriter,
    array_id: str,
    submission: ev.Submitted,
    plan: Plan,
    policy: PolicySet,
    record: Decision,
    now: datetime,
    *,
    waits: bool,
) -> JobView:
    """Record an array and its first tasks. Each task is judged by itself, counting what those before it hold, and has
    its own hold.

    ``plan``: for one task; ``waits``: jobs of this store occupy the capacity that the plan is for. Raises `NotAllowed`
    if the gate admits fewer tasks than have to begin; the caller must then roll the transaction back.
    """
    tx.record(replace(record, job_id=array_id))
    started = _start_first(tx, array_id, submission, plan, policy, now, waits=waits)
    if started.refusal is not None:
        raise too_many(started.count, started.refusal, submission.job)
    return tx.append(array_id, [(None, ev.TasksStarted(first=0, count=started.count))], now)


def rehearse(store: Store, submission: ev.Submitted, plan: Plan, policy: PolicySet, now: datetime) -> NotAllowed | None:
    """Why `begin` would refuse the array now; None if it would not. Records nothing."""
    with store.rehearsal() as rehearsed, rehearsed.writing() as tx:
        started = _start_first(tx, "rehearsed", submission, plan, policy, now, waits=False)
    return too_many(started.count, started.refusal, submission.job) if started.refusal is not None else None


def _start_first(
    tx: StoreWriter, id: str, submission: ev.Submitted, plan: Plan, policy: PolicySet, now: datetime, *, waits: bool
) -> StartedTasks:
    view = tx.append(id, [(None, submission)], now)
    room = 0 if waits or submission.job.array is None else room_for(plan, submission.job.array.at_once)
    return start_tasks(tx, view, plan, policy, now, room=room)


def too_many(allowed: int, refusal: Admission, job: Job) -> NotAllowed:
    """The refusal of an array of which only ``allowed`` tasks may begin."""
    parallel = job.array.at_once if job.array else 0
    objections = "; ".join(f"{verdict.message} ({verdict.source})" for verdict in refusal.objections)
    if refusal.answer is Answer.ASK:
        return NotAllowed(
            f"an array does not wait for an approval, and this one needs one: {objections}",
            hint="an approver can allow it in advance, with a standing grant: `gpubroker approvals grant --help`",
        )
    hint = f"write `parallel: {allowed}` under `array:`, or lower max_duration" if allowed else ""
    return NotAllowed(f"of {parallel} tasks at once only {allowed} may begin: {objections}", hint=hint)


def outlook_note(array: JobArray, job: Job, plan: Plan, admission: Admission, max_duration: timedelta) -> str:
    """The size and cost of an array in a sentence, for its plan's notes. ``plan``: for one task, with placements;
    ``max_duration``: of a task. Amounts in USD, without capacity paid before."""
    full_hold = each = whole_hold(plan, max_duration)
    begin, why = max(room_for(plan, array.at_once), 1), "no more fit"
    if job.max_cost is not None and full_hold:
        affordable = max(job.max_cost.micros // full_hold.micros, 1)
        if affordable < begin:
            begin, why = affordable, "max_cost pays for no more"
        each = min(full_hold, job.max_cost.share(1, begin))
    held_now = sum((held for kind, held in admission.money.items() if kind is not MoneyKind.AMORTISED), Money.ZERO)
    each = min(each, held_now)
    text = f"an array of {array.count:,} tasks, {begin:,} at once: the plan is for one of them"
    if begin < array.at_once:
        text += f" (not {array.at_once:,}, as {why})"
    if each:
        text += f"; {(each * begin).up_to_cents()} are held for those that begin, {each.up_to_cents()} each"
    expected = admission.placement.expected_cost * array.count
    if expected and admission.placement.duration is not None:
        text += f"; all tasks are expected to cost about {expected.up_to_cents()}"
    return text
