"""Raises a job's limits: the policies judge it, and money is held in the same transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from broker.app.jobs.jobs import check_owner
from broker.app.jobs.nearest import JobLimits, alternatives, as_text, once, smaller, starts_later
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import Alternative, InvalidInput, NotAllowed
from broker.core.events import events as ev
from broker.core.events.lifecycle import advance
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.job.placements import Placement, Plan
from broker.core.market.offers import MoneyKind
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import Answer
from broker.core.values.money import Money, alike
from broker.core.values.units import print_duration
from broker.ledger.entries import Balance, Movement
from broker.ledger.journal import Reading, Writing
from broker.reconciler.admission.admission import Admission, re_place
from broker.reconciler.admission.approvals import ask, of_ask, through_standing
from broker.reconciler.admission.facts import facts_of
from broker.reconciler.admission.records import decision_of, held_of, hold_entries, movements_of
from broker.reconciler.controllers.arrays import committed
from broker.reconciler.progress import billed_time
from broker.reconciler.settlement.settlement import tags_of

_TOO_MUCH = "too_much_is_asked"  # a budget's code: the owner's open requests already hold all that they may


def extend(broker: Broker, view: JobView, more: JobLimits, *, by: Actor) -> JobView:
    """Raise a job's limits; a paused job continues. A job that a policy paused may continue without new limits.

    The policies judge a running job here, and the money is held in the same transaction. A paused job is judged when it
    is placed again, unless its owner's open requests leave no room. If a rule asks for approval, the money is held and
    a request is made (`JobView.asked`); a running job keeps its present limits until then.

    Raises `InvalidInput` if a limit is not higher, or less than the job has spent and holds, or if the job has ended;
    `NotAllowed` for another person's job, for a job with an open request, and if a policy refuses. Nothing changes
    then, but the refusal is recorded.
    """
    check_owner(view, by)
    if more.max_cost is None and more.max_duration is None and not _may_go_on_as_it_is(view):
        raise InvalidInput("nothing to extend", hint="add --max-cost or --max-duration")
    with broker.store.writing() as tx:
        done = _extended(broker, tx, view, more, by, broker.clock.now())
    if isinstance(done, JobView):
        return done
    passing = _what_would_pass(broker, view, more, by, done)
    raise NotAllowed(
        "; ".join(f"{v.message} ({v.source})" for v in done.objections),
        hint=as_text(passing, done),
        alternatives=passing,
    )


def _what_would_pass(
    broker: Broker, view: JobView, more: JobLimits, by: Actor, refused: Admission
) -> list[Alternative]:
    """Extensions similar to the refused one that the gate would allow now."""
    now = broker.clock.now()
    with broker.store.reading() as real:
        look = once(real)
        current = look.job(view.id) or view
        if current.latest is None:
            return []
        placement, balance = current.latest.placement, look.balance(view.id)

        def judge(limits: JobLimits) -> Admission:
            _, after = _with_limits(current, limits, by, now)
            return _judged(broker, look, after, placement, now)[0]

        beyond = Money.ZERO if current.max_cost is None else current.max_cost + Money(1)
        least = JobLimits(
            max(beyond, sum(_used(balance), Money.ZERO)), current.max_duration + timedelta(microseconds=1)
        )
        later = starts_later(refused, broker.policy(), facts_of(look, broker.policy(), now))
        return alternatives(more, smaller(more, least, judge), later, lambda limits: _command(view, limits))


def _command(view: JobView, limits: JobLimits) -> str:
    cost = "" if limits.max_cost is None else f" --max-cost '{limits.max_cost}'"
    time = "" if limits.max_duration is None else f" --max-duration {print_duration(limits.max_duration)}"
    return f"gpubroker jobs extend {view.id}{cost}{time}"


def _check_extension(current: JobView, more: JobLimits, balance: Mapping[MoneyKind, Balance]) -> None:
    """Raises `InvalidInput` and `NotAllowed` as `extend`, for what needs no policy."""
    if current.state.final or current.cancel_requested:
        state = f"is over ({current.state.value})" if current.state.final else "is being cancelled"
        raise InvalidInput(
            f"{current.id} {state}, so higher limits change nothing",
            hint="`gpubroker jobs resume` continues from its checkpoint as a new job, or starts again",
        )
    if current.asked is not None:
        who = ", ".join(current.asked.approvers)
        raise NotAllowed(f"{current.id} already waits for approval by {who}", hint="`gpubroker approvals list`")
    if more.max_cost is not None and current.max_cost is not None and more.max_cost <= current.max_cost:
        raise InvalidInput(f"max_cost is {current.max_cost} already; expected more than that")
    spent, held = _used(balance)
    if more.max_cost is not None and more.max_cost < spent + held:
        wanted, gone, kept = alike(more.max_cost, spent, held)
        raise InvalidInput(
            f"max_cost of {wanted} is less than the job has already: {gone} spent and {kept} held; "
            f"expected at least {(spent + held).up_to_cents()}"
        )
    if more.max_duration is not None and more.max_duration <= current.max_duration:
        raise InvalidInput(f"max_duration is {print_duration(current.max_duration)} already; expected more than that")


def _above_its_tasks(tx: Writing, array: JobView, wanted: Money) -> None:
    """Raises `InvalidInput` for a ``max_cost`` of an array that its tasks may exceed: it is less than they have spent
    and may spend, or tasks run without a limit. Each task got its share when it started."""
    if array.max_cost is None and any(task.max_cost is None for task in tx.open_tasks(array.id)):
        raise InvalidInput(
            f"{array.id} has no max_cost, and tasks that run were started without one: they would not keep it",
            hint=f"`jobs extend TASK --max-cost USD` limits one; or cancel {array.id} and submit it with a max_cost",
        )
    if wanted < (gone := committed(tx, array.id)):
        least = gone.up_to_cents()
        raise InvalidInput(f"max_cost of {wanted} is less than its tasks have spent and may spend; at least {least}")


def _extended(
    broker: Broker, tx: Writing, view: JobView, more: JobLimits, by: Actor, now: datetime
) -> JobView | Admission:
    """The job with its new limits or with a request for them; or the refusal. The decision is recorded, unless the job
    is judged again before money is held for it."""
    current = tx.job(view.id) or view
    _check_extension(current, more, tx.balance(view.id))
    if more.max_cost is not None and current.job.array is not None:
        _above_its_tasks(tx, current, more.max_cost)
    if more.max_cost is not None and current.job.task is not None:
        _within_the_array(tx, current, current.job.task.array, more.max_cost)
    body, after = _with_limits(current, more, by, now)
    if after.latest is None:
        return tx.append(view.id, [(None, body)], now)  # it is judged when it is placed
    found, record = _judged(broker, tx, after, after.latest.placement, now)
    runs = not after.latest.state.final
    held, moved = held_of(tx.balance(view.id)), movements_of(tx, view.id)
    dated = hold_entries(tags_of(after), held, found.burns, Movement.TOP_UP, moved)
    record = of_ask(record, now) if found.answer is Answer.ASK else record
    # When it is placed again, the broker makes the request, which could exceed what its owner may request.
    refused = found.answer is Answer.DENY and (runs or any(v.code == _TOO_MUCH for v in found.objections))
    if runs or refused or found.answer is Answer.ASK:
        tx.record(replace(record, job_id=view.id, attempt=after.latest.number if runs else None))
    if found.answer is Answer.ASK:
        asked = ask(found, now, by=by.identity, extension=True, max_cost=more.max_cost, max_duration=more.max_duration)
        tx.post(dated)
        return tx.append(view.id, [(None, asked)], now)
    if refused:
        return found
    given = through_standing(tx, found, view.id)
    items: list[tuple[int | None, ev.EventBody]] = [*((None, one) for one in given), (None, body)]
    after = tx.append(view.id, items, now)
    if runs:
        tx.post(dated)
    return after


def _with_limits(view: JobView, more: JobLimits, by: Actor, now: datetime) -> tuple[ev.Extended, JobView]:
    """The event that sets new limits, and the job after it."""
    seconds = None if more.max_duration is None else more.max_duration.total_seconds()
    body = ev.Extended(by=by.identity, max_cost=more.max_cost, max_duration_seconds=seconds)
    return body, advance(view, ev.Event(view.id, view.seq + 1, now, None, body))


def _may_go_on_as_it_is(view: JobView) -> bool:
    """Whether a policy paused the job, and not one of its own limits; it then needs no new limits to continue."""
    latest = view.latest
    own = (Cause.MAX_COST, Cause.MAX_DURATION)
    return view.state is JobState.PAUSED_BUDGET and latest is not None and latest.cause not in own


def _within_the_array(look: Reading, task: JobView, array: str, max_cost: Money) -> None:
    """Raises `InvalidInput` for a ``max_cost`` of a task above what is left of the array's ``max_cost``."""
    whole = look.job(array)
    if whole is None or whole.max_cost is None:
        return
    left = whole.max_cost - committed(look, array) + (task.max_cost or Money.ZERO)
    if max_cost > left:
        raise InvalidInput(
            f"max_cost of {max_cost} is more than is left of the array's {whole.max_cost}: {left.up_to_cents()}",
            hint=f"raise that first: `gpubroker jobs extend {array} --max-cost USD`",
        )


def _used(balance: Mapping[MoneyKind, Balance]) -> tuple[Money, Money]:
    """A job's spend and holds (USD) in the money that its ``max_cost`` limits."""
    mine = [b for kind, b in balance.items() if kind is not MoneyKind.AMORTISED]
    return sum((b.spent for b in mine), Money.ZERO), sum((b.held for b in mine), Money.ZERO)


def _judged(
    broker: Broker, look: Reading, view: JobView, placement: Placement, now: datetime
) -> tuple[Admission, Decision]:
    """The verdict on the money that the job needs under its new limits, on its latest placement, and its record. Judged
    as an extension even if the present hold is enough."""
    policy = broker.policy()
    here = Plan(now, (placement,), (), 1, None, view.deadline)
    facts_for, billed = facts_of(look, policy, now), billed_time(view, now)
    found = re_place(view, here, policy, facts_for, look.balance(view.id), billed=billed, now=now, by_owner=True)
    return found, decision_of(found, here, policy, facts_for(found.action))
