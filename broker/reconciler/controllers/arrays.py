"""Arrays: starts tasks as others end, continues those paused for money, and ends the array with its last task.

A task is admitted with its own hold and then placed, launched, settled and closed by the same code as any other job.
Its id follows from its array and its number, so no task is started twice, whichever process is killed at whatever time.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from broker.core.events import events as ev
from broker.core.events.events import EventBody
from broker.core.events.lifecycle import advance
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import Cancelled, Completed, EndReason, TasksEnded, same_reason
from broker.core.job.arrays import task_id
from broker.core.job.placements import Plan
from broker.core.ports import PolicySet
from broker.core.values.money import Money
from broker.ledger.entries import Movement, cash_sums
from broker.ledger.journal import TaskCounts
from broker.reconciler.admission.admission import Admission, admit, as_if_unoccupied, judge_array, whole_hold
from broker.reconciler.admission.approvals import approve_by_standing_grants
from broker.reconciler.admission.facts import facts_of
from broker.reconciler.admission.records import decision_of, hold_entries, nothing_fits, refusal_of
from broker.reconciler.controller import (
    AtRest,
    Controller,
    ControllerResult,
    DecideAnew,
    JobContext,
    RetryReason,
    TryLater,
    note_wait,
)
from broker.reconciler.controllers.continuation import denied_at_gate, is_out_of_money
from broker.reconciler.controllers.placement import Plans
from broker.reconciler.settlement.settlement import tags_of
from broker.store.jobs.journal import StoreWriter
from broker.store.jobs.reader import StoreReader
from broker.store.store import Store, append_if, writing_if

# If machines are occupied, the end of a task frees some and is noticed at once; the end of other jobs is not.
_RECHECK_AFTER = timedelta(seconds=15)
BY_ARRAY = "its array"
_WAITING = (JobState.QUEUED, JobState.PLANNED, JobState.INTERRUPTED)


MakePlans = Callable[[JobView, PolicySet, datetime], Plans]
"""The type of `Placing.plans`."""


@dataclass(frozen=True, slots=True)
class StartedTasks:
    """The number of tasks started; ``first``: the turn of the first one.

    ``refusal``: the gate's answer to the next task; None if a task was started for every free slot that there is money
    for.
    """

    first: int
    count: int
    refusal: Admission | None = None


def room_for(plan: Plan, limit: int) -> int:
    """The number of tasks that fit on free machines; ``limit`` if machines can be rented. ``plan``: for one task."""
    fits: dict[str, int] = {}
    for placement in plan.placements:
        offer, count = placement.offer, 0
        if offer.slots is None:
            return limit
        if offer.divided:
            left = offer.left or offer.whole or offer.has
            while left >= offer.has and count < limit:
                left, count = left - offer.has, count + 1
        else:
            count = offer.slots // placement.nodes
        fits[offer.capacity] = max(fits.get(offer.capacity, 0), count)
    return min(sum(fits.values()), limit)


def start_tasks(
    tx: StoreWriter, view: JobView, plan: Plan, policy: PolicySet, now: datetime, *, room: int
) -> StartedTasks:
    """Start as many tasks of the array as it has slots, machines and money for.

    Each is judged as a submission of its own, with the holds of the tasks before it. ``plan``: for one task; it has
    placements. ``room``: the number of tasks that fit on free machines. If none fits, one task waits in the queue for
    all, so that the array does not fill the queue.
    """
    array, counts = view.job.array, tx.task_counts(view.id)
    assert array is not None, "only an array has tasks"
    first = counts.started
    waiting = sum(counts.states.get(state, 0) for state in _WAITING)
    slots = min(array.at_once - counts.open, array.count - first, max(room, 1) - waiting)
    count, limit = _task_limits(tx, view, plan, max(slots, 0), others=counts.open > 0)
    for turn in range(first, first + count):
        refused = _start(tx, view, array.number(turn), limit, plan, policy, now)
        if refused is not None:
            return StartedTasks(first, turn - first, refused)
    return StartedTasks(first, count)


def _start(
    tx: StoreWriter, view: JobView, number: int, limit: Money | None, plan: Plan, policy: PolicySet, now: datetime
) -> Admission | None:
    """Hold the money of one task and record its submission; returns the gate's refusal, if any."""
    job = view.job.of_task(view.id, number, deadline=view.deadline, max_cost=limit)
    facts_for = facts_of(tx, policy, now)
    admission = admit(job, view.user, plan, policy, facts_for, max_duration=view.max_duration, now=now)
    assert view.job.array is not None, "only an array has tasks"
    array_admission = judge_array(admission, view.job.array, view.max_cost, policy, facts_for, view.id)
    if not array_admission.may_launch:
        return array_admission
    if array_admission is not admission and (
        array_approvals := approve_by_standing_grants(tx, array_admission, view.id, array=True)
    ):
        tx.append(view.id, [(None, approval) for approval in array_approvals], now)
    submitted = ev.Submitted(
        job=job,
        user=view.user,
        deadline=view.deadline,
        max_duration_seconds=view.max_duration.total_seconds(),
        work_seconds=None if view.work is None else view.work.total_seconds(),
        on_demand=view.on_demand,
    )
    id = task_id(view.id, number)
    task = tx.append(id, [(None, submitted)], now)
    record = decision_of(admission, plan, policy, facts_for(admission.action))
    tx.record(replace(record, job_id=id, attempt=1))
    tx.post(hold_entries(tags_of(task), {}, admission.burns, Movement.HOLD, 1))
    approvals: list[tuple[int | None, EventBody]] = [
        (None, approval) for approval in approve_by_standing_grants(tx, admission, id)
    ]
    if approvals:
        tx.append(id, approvals, now)
    for grant in _standing_grants(tx, view.id):
        tx.use_standing(grant, id)  # the money of an array is that of its tasks
    return None


def _standing_grants(tx: StoreWriter, array: str) -> set[int]:
    """The numbers of the standing grants that approved the array as a whole."""
    current = tx.job(array)
    approvals = (event.body for event in tx.events(array)) if current is not None and current.grants else ()
    return {body.standing for body in approvals if isinstance(body, ev.ApprovalGiven) and body.standing is not None}


def _task_limits(tx: StoreReader, view: JobView, plan: Plan, slots: int, *, others: bool) -> tuple[int, Money | None]:
    """The number of tasks to start, and the maximum cost of each (None: no limit).

    Fewer than ``slots`` if the rest of the array's ``max_cost`` does not pay for as many unlimited holds. If it does
    not pay for a single one: none while ``others`` run, as these may leave a part of their money unused; else one.
    """
    if view.max_cost is None or not slots:
        return slots, None
    left = max(view.max_cost - committed(tx, view.id), Money.ZERO)
    hold_per_task = whole_hold(plan, view.max_duration)
    payable = min(left.micros // hold_per_task.micros, slots) if hold_per_task else slots
    count = payable or (0 if others else 1)
    return count, Money(left.micros // count) if count else None  # no rounding may make it more than is left


def committed(snapshot: StoreReader, array: str) -> Money:
    """The used part of the array's ``max_cost`` (USD): the cost of closed tasks, and the maximum cost of the others.
    While an array has a limit, each of its tasks has one (`jobs extend` gives none to an array with others)."""
    closed, _ = cash_sums(snapshot.task_money(array, closed=True))
    return sum((task.max_cost for task in snapshot.open_tasks(array) if task.max_cost is not None), closed)


def _new_limit(snapshot: StoreReader, array: JobView, task: JobView, paused: int) -> Money | None:
    """The ``max_cost`` of a paused task (USD) with its share of what is left of the array's."""
    if task.max_cost is None or array.max_cost is None:
        return None
    return task.max_cost + max(array.max_cost - committed(snapshot, array.id), Money.ZERO).share(1, paused)


class RunningArrays(Controller):
    """Starts tasks, and ends arrays. ``plans``: makes plans for one task, from the array's view."""

    def __init__(self, journal: Store, policy: Callable[[], PolicySet], plans: MakePlans) -> None:
        self._journal = journal
        self._policy = policy
        self._plans = plans

    def goes_by(self, about: JobContext) -> Hashable:
        """The array's own events, and the states of its tasks."""
        counts = self._counts(about.view)
        return about.view.seq, tuple(sorted(counts.states.items())), counts.open

    def reconcile(self, about: JobContext) -> ControllerResult:
        """Start tasks, or end the array. Raises as `Placing.reconcile`."""
        view, now, counts = about.view, about.now, self._counts(about.view)
        array = view.job.array
        assert array is not None, "called for arrays only"
        left = 0 if view.cancel_requested else array.count - counts.started
        tasks = self._open_tasks(view) if counts.open and not view.cancel_requested else ()
        paused = [task for task in tasks if is_out_of_money(task)]
        if paused and self._resume(view, paused, now):
            return DecideAnew()
        if not left and not counts.open:
            state, reason = _end(view, counts)
            append_if(self._journal, view, [(None, ev.JobEnded(state=state, reason=reason))], now)
            return DecideAnew()
        if not left or counts.open >= array.at_once:
            self._note_tasks(view, tasks, now)
            return TryLater(RetryReason.NO_PLACE) if paused else AtRest()
        policy = self._policy()
        plan, anyhow = self._plan(view, policy, now)
        if not plan.placements:
            note_wait(self._journal, view, nothing_fits(anyhow.rejections), now)
            return TryLater(RetryReason.NO_PLACE)
        room = room_for(plan, array.at_once) if plan is anyhow else 0
        return self._start(view, plan, policy, now, room)

    def _open_tasks(self, view: JobView) -> Sequence[JobView]:
        with self._journal.reading() as snapshot:
            return snapshot.open_tasks(view.id)

    def _resume(self, view: JobView, paused: Sequence[JobView], now: datetime) -> bool:
        """Continue the first paused task that there is money for again, with its share of what is left of the array's
        ``max_cost``; returns whether there is one."""
        policy = self._policy()
        for task in paused:
            with self._journal.reading() as snapshot:
                limit = _new_limit(snapshot, view, task, len(paused))
            body = ev.Extended(by=BY_ARRAY, max_cost=limit)
            after = advance(task, ev.Event(task.id, task.seq + 1, now, None, body))
            plans = self._plans(after, policy, now)
            with writing_if(self._journal, task) as tx:
                is_current = self._policy().version == policy.version and limit == _new_limit(
                    tx, view, task, len(paused)
                )
                if is_current and not denied_at_gate(tx, after, policy, plans, now):
                    tx.append(task.id, [(None, body)], now)
                    return True
        return False

    def _note_tasks(self, view: JobView, tasks: Sequence[JobView], now: datetime) -> None:
        """Record why the array waits if all its open tasks do; else that it waits no more."""
        reasons = [task.waiting for task in tasks if task.waiting is not None]
        if reasons and len(reasons) == len(tasks):
            note_wait(self._journal, view, reasons[0], now)
        elif view.waiting is not None:
            started = ev.TasksStarted(first=self._counts(view).started, count=0)
            append_if(self._journal, view, [(None, started)], now)

    def _start(self, view: JobView, plan: Plan, policy: PolicySet, now: datetime, room: int) -> ControllerResult:
        with writing_if(self._journal, view) as tx:
            if self._policy().version != policy.version:
                return DecideAnew()
            started = start_tasks(tx, view, plan, policy, now, room=room)
            events: list[tuple[int | None, EventBody]] = []
            if started.count and (view.waiting is not None or not started.first):
                events.append((None, ev.TasksStarted(first=started.first, count=started.count)))
            if started.refusal is not None:
                reason = refusal_of(started.refusal).reason
                if started.count or not same_reason(reason, view.waiting):
                    events.append((None, ev.NothingFeasible(reason=reason)))
            if events:
                tx.append(view.id, events, now)
        if started.refusal is not None:
            return TryLater(RetryReason.NO_PLACE)
        return DecideAnew() if started.count else AtRest(now + _RECHECK_AFTER)

    def _plan(self, view: JobView, policy: PolicySet, now: datetime) -> tuple[Plan, Plan]:
        """Two plans for one task: one that includes machines occupied by our own jobs, for which it would wait its
        turn, and one over capacity that is free now.
        """
        plans = self._plans(view, policy, now)
        for plan in (plans.in_time, plans.anyhow):
            if plan.placements:
                return plan, plan
        occupied = plans.over(as_if_unoccupied(plans.market.offers)) if plans.over is not None else plans.anyhow
        return occupied, plans.anyhow

    def _counts(self, view: JobView) -> TaskCounts:
        with self._journal.reading() as snapshot:
            return snapshot.task_counts(view.id)


def _end(view: JobView, counts: TaskCounts) -> tuple[JobState, EndReason]:
    failed, cancelled = (counts.states.get(state, 0) for state in (JobState.FAILED, JobState.CANCELLED))
    if view.cancel_requested:
        return JobState.CANCELLED, Cancelled()
    if not failed and not cancelled:
        return JobState.SUCCEEDED, Completed()
    state = JobState.FAILED if failed else JobState.CANCELLED
    return state, TasksEnded(failed=failed, cancelled=cancelled, count=counts.started)
