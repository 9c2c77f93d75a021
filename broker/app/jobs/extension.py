"""Raises a job's limits: the policies judge it, and money is held in the same transaction."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from broker.app.jobs.alternatives import (
    JobLimits,
    alternatives,
    alternatives_text,
    cached_reading,
    earliest_start,
    smaller_limits,
)
from broker.app.jobs.jobs import check_owner
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import Alternative, Conflict, InvalidInput, NotAllowed
from broker.core.events import events as ev
from broker.core.events.lifecycle import advance
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.job.placements import Placement, Plan
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import Answer
from broker.core.values.money import Money, round_distinct
from broker.core.values.units import print_duration
from broker.ledger.entries import Balance
from broker.reconciler.admission.admission import Admission
from broker.reconciler.admission.approvals import approve_by_standing_grants, ask, mark_as_request
from broker.reconciler.admission.facts import facts_of
from broker.reconciler.admission.records import JudgedStart, judge_start
from broker.reconciler.controllers.arrays import committed
from broker.store.jobs.journal import StoreWriter
from broker.store.jobs.reader import StoreReader

_TOO_MUCH = "too_much_is_asked"  # a budget's code: the owner's open requests already hold all that they may


def extend(broker: Broker, view: JobView, limits: JobLimits, *, by: Actor) -> JobView:
    """Raise a job's limits; a paused job continues. A job that a policy paused may continue without new limits.

    The policies judge a running job here, and the money is held in the same transaction. A paused job is judged when it
    is placed again, unless its owner's open requests leave no room. If a rule asks for approval, the money is held and
    a request is made (`JobView.asked`); a running job keeps its present limits until then.

    Raises `InvalidInput` if a limit is not higher, or less than the job has spent and holds, or if the job has ended;
    `NotAllowed` for another person's job, for a job with an open request, and if a policy refuses. Nothing changes
    then, but the refusal is recorded.
    """
    check_owner(view, by)
    if limits.max_cost is None and limits.max_duration is None and not _may_continue_unchanged(view):
        raise InvalidInput("nothing to extend", hint="add --max-cost or --max-duration")
    with broker.store.writing() as tx:
        outcome = _judge_and_extend(broker, tx, view, limits, by, broker.clock.now())
    if isinstance(outcome, JobView):
        return outcome
    suggestions = _allowed_extensions(broker, view, limits, by, outcome)
    raise NotAllowed(
        "; ".join(f"{v.message} ({v.source})" for v in outcome.objections),
        hint=alternatives_text(suggestions, outcome),
        alternatives=suggestions,
    )


def _allowed_extensions(
    broker: Broker, view: JobView, requested_limits: JobLimits, by: Actor, refusal: Admission
) -> list[Alternative]:
    """Extensions similar to the refused one that the gate would allow now."""
    now = broker.clock.now()
    with broker.store.reading() as store_reader:
        reader = cached_reading(store_reader)
        current = reader.job(view.id) or view
        if current.latest is None:
            return []
        placement, balance = current.latest.placement, reader.balance(view.id)

        def judge(limits: JobLimits) -> Admission:
            _, extended_view = _apply_limits(current, limits, by, now)
            return _judge_limits(broker, reader, extended_view, placement, now).admission

        above_max_cost = Money.ZERO if current.max_cost is None else current.max_cost + Money(1)
        lowest_limits = JobLimits(
            max(above_max_cost, sum(_spent_and_held(balance), Money.ZERO)),
            current.max_duration + timedelta(microseconds=1),
        )
        later_start = earliest_start(refusal, broker.policy(), facts_of(reader, broker.policy(), now))
        return alternatives(
            requested_limits,
            smaller_limits(requested_limits, lowest_limits, judge),
            later_start,
            lambda limits: _extend_command(view, limits),
        )


def _extend_command(view: JobView, limits: JobLimits) -> str:
    cost = "" if limits.max_cost is None else f" --max-cost '{limits.max_cost}'"
    time = "" if limits.max_duration is None else f" --max-duration {print_duration(limits.max_duration)}"
    return f"gpubroker jobs extend {view.id}{cost}{time}"


def _check_extension(current: JobView, limits: JobLimits, balance: Mapping[MoneyKind, Balance]) -> None:
    """Raises `InvalidInput` and `Conflict` as `extend`, for what needs no policy."""
    if current.state.final or current.cancel_requested:
        state = f"is over ({current.state.value})" if current.state.final else "is being cancelled"
        raise Conflict(
            f"{current.id} {state}, so higher limits change nothing",
            hint="`gpubroker jobs resume` continues from its checkpoint as a new job, or starts again",
        )
    if current.asked is not None:
        approvers = ", ".join(current.asked.approvers)
        raise Conflict(f"{current.id} already waits for approval by {approvers}", hint="`gpubroker approvals list`")
    if limits.max_cost is not None and current.max_cost is not None and limits.max_cost <= current.max_cost:
        raise InvalidInput(f"max_cost is {current.max_cost} already; expected more than that")
    spent, held = _spent_and_held(balance)
    if limits.max_cost is not None and limits.max_cost < spent + held:
        limit_text, spent_text, held_text = round_distinct(limits.max_cost, spent, held)
        raise InvalidInput(
            f"max_cost of {limit_text} is less than the job has already: {spent_text} spent and {held_text} held; "
            f"expected at least {(spent + held).up_to_cents()}"
        )
    if limits.max_duration is not None and limits.max_duration <= current.max_duration:
        raise InvalidInput(f"max_duration is {print_duration(current.max_duration)} already; expected more than that")


def _check_task_limits(tx: StoreWriter, array: JobView, max_cost: Money) -> None:
    """Raises `InvalidInput` for a ``max_cost`` of an array that its tasks may exceed: it is less than they have spent
    and may spend, or tasks run without a limit. Each task got its share when it started."""
    if array.max_cost is None and any(task.max_cost is None for task in tx.open_tasks(array.id)):
        raise InvalidInput(
            f"{array.id} has no max_cost, and tasks that run were started without one: they would not keep it",
            hint=f"`jobs extend TASK --max-cost USD` limits one; or cancel {array.id} and submit it with a max_cost",
        )
    if max_cost < (committed_cost := committed(tx, array.id)):
        lowest = committed_cost.up_to_cents()
        raise InvalidInput(f"max_cost of {max_cost} is less than its tasks have spent and may spend; at least {lowest}")


def _judge_and_extend(
    broker: Broker, tx: StoreWriter, view: JobView, limits: JobLimits, by: Actor, now: datetime
) -> JobView | Admission:
    """The job with its new limits or with a request for them; or the refusal. The decision is recorded, unless the job
    is judged again before money is held for it."""
    current = tx.job(view.id) or view
    _check_extension(current, limits, tx.balance(view.id))
    if limits.max_cost is not None and current.job.array is not None:
        _check_task_limits(tx, current, limits.max_cost)
    if limits.max_cost is not None and current.job.task is not None:
        _check_array_limit(tx, current, current.job.task.array, limits.max_cost)
    body, extended_view = _apply_limits(current, limits, by, now)
    if extended_view.latest is None:
        return tx.append(view.id, [(None, body)], now)  # it is judged when it is placed
    judged = _judge_limits(broker, tx, extended_view, extended_view.latest.placement, now)
    admission, entries = judged.admission, judged.hold
    is_running = not extended_view.latest.state.final
    record = mark_as_request(judged.record, now) if admission.answer is Answer.ASK else judged.record
    # When it is placed again, the broker makes the request, which could exceed what its owner may request.
    is_refused = admission.answer is Answer.DENY and (
        is_running or any(v.code == _TOO_MUCH for v in admission.objections)
    )
    if is_running or is_refused or admission.answer is Answer.ASK:
        tx.record(replace(record, attempt=extended_view.latest.number if is_running else None))
    if admission.answer is Answer.ASK:
        approval_event = ask(
            admission, now, by=by.identity, extension=True, max_cost=limits.max_cost, max_duration=limits.max_duration
        )
        tx.post(entries)
        return tx.append(view.id, [(None, approval_event)], now)
    if is_refused:
        return admission
    grant_events = approve_by_standing_grants(tx, admission, view.id)
    items: list[tuple[int | None, ev.EventBody]] = [
        *((None, grant_event) for grant_event in grant_events),
        (None, body),
    ]
    extended_view = tx.append(view.id, items, now)
    if is_running:
        tx.post(entries)
    return extended_view


def _apply_limits(view: JobView, limits: JobLimits, by: Actor, now: datetime) -> tuple[ev.Extended, JobView]:
    """The event that sets new limits, and the job after it."""
    seconds = None if limits.max_duration is None else limits.max_duration.total_seconds()
    body = ev.Extended(by=by.identity, max_cost=limits.max_cost, max_duration_seconds=seconds)
    return body, advance(view, ev.Event(view.id, view.seq + 1, now, None, body))


def _may_continue_unchanged(view: JobView) -> bool:
    """Whether a policy paused the job, and not one of its own limits; it then needs no new limits to continue."""
    latest = view.latest
    own_causes = (Cause.MAX_COST, Cause.MAX_DURATION)
    return view.state is JobState.PAUSED_BUDGET and latest is not None and latest.cause not in own_causes


def _check_array_limit(reader: StoreReader, task: JobView, array: str, max_cost: Money) -> None:
    """Raises `InvalidInput` for a ``max_cost`` of a task above what is left of the array's ``max_cost``."""
    array_view = reader.job(array)
    if array_view is None or array_view.max_cost is None:
        return
    remaining = array_view.max_cost - committed(reader, array) + (task.max_cost or Money.ZERO)
    if max_cost > remaining:
        raise InvalidInput(
            f"max_cost of {max_cost} is more than is left of the array's {array_view.max_cost}: "
            f"{remaining.up_to_cents()}",
            hint=f"raise that first: `gpubroker jobs extend {array} --max-cost USD`",
        )


def _spent_and_held(balance: Mapping[MoneyKind, Balance]) -> tuple[Money, Money]:
    """A job's spend and holds (USD) in the money that its ``max_cost`` limits."""
    limited_balances = [b for kind, b in balance.items() if kind is not MoneyKind.AMORTISED]
    return sum((b.spent for b in limited_balances), Money.ZERO), sum((b.held for b in limited_balances), Money.ZERO)


def _judge_limits(
    broker: Broker, reader: StoreReader, view: JobView, placement: Placement, now: datetime
) -> JudgedStart:
    """The verdict on the money that the job needs under its new limits, on its latest placement. Judged as an extension
    even if the present hold is enough."""
    plan = Plan(now, (placement,), (), 1, None, view.deadline)
    return judge_start(reader, view, plan, broker.policy(), now, by_owner=True)
