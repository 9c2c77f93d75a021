"""Submitting an array: its first tasks, as many as its `parallel` says, begin together or not at all."""

from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class ArrayOutlook:
    """The size and cost of an array. ``begin``: the number of tasks that begin at once; ``each``: the hold for one of
    them; ``expected``: the expected cost of all tasks (None: unknown). Amounts in USD, without capacity paid before."""

    tasks: int
    begin: int
    each: Money
    expected: Money | None

    @property
    def held(self) -> Money:
        return self.each * self.begin


def outlook(array: JobArray, job: Job, plan: Plan, admission: Admission, max_duration: timedelta) -> ArrayOutlook:
    """The size and cost of the array. ``plan``: for one task, with placements; ``max_duration``: of a task."""
    full_hold = whole_hold(plan, max_duration)
    first_tasks, hold_per_task = array.at_once, full_hold
    if job.max_cost is not None and full_hold:
        first_tasks = max(min(first_tasks, job.max_cost.micros // full_hold.micros), 1)
        hold_per_task = min(full_hold, job.max_cost.share(1, first_tasks))
    held_now = sum((held for kind, held in admission.money.items() if kind is not MoneyKind.AMORTISED), Money.ZERO)
    hold_per_task = min(hold_per_task, held_now)
    placement = admission.placement
    expected = placement.expected_cost * array.count if placement.duration is not None else None
    return ArrayOutlook(array.count, first_tasks, hold_per_task, expected)


def outlook_note(array_outlook: ArrayOutlook, job: Job) -> str:
    """The outlook in a sentence, for a plan's notes."""
    array = job.array
    parallel = array.at_once if array else 0
    text = f"an array of {array_outlook.tasks:,} tasks, {array_outlook.begin:,} at once: the plan is for one of them"
    if array_outlook.begin < parallel:
        text += f" (not {parallel:,}, as max_cost pays for no more)"
    if array_outlook.each:
        held, each = array_outlook.held.up_to_cents(), array_outlook.each.up_to_cents()
        text += f"; {held} are held for those that begin, {each} each"
    if array_outlook.expected:
        text += f"; all tasks are expected to cost about {array_outlook.expected.up_to_cents()}"
    return text
