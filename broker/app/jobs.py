"""Jobs after submission: find them, show them, cancel them, give them more money or time, read their logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.app.wiring import Broker
from broker.core import events as ev
from broker.core.errors import InvalidInput, NotAllowed, UnknownName
from broker.core.events import JobState
from broker.core.lifecycle import JobView
from broker.core.money import Money
from broker.core.offers import MoneyKind
from broker.core.placements import Plan
from broker.core.policy import Answer
from broker.launch.admission import re_place
from broker.launch.journal import Reading
from broker.launch.placing import facts_from, hold_entries
from broker.launch.progress import billed_time
from broker.launch.settlement import tags_of
from broker.ledger.entries import Balance, Entry, Movement


def find(broker: Broker, reference: str) -> JobView:
    """The job with that id, a unique beginning of it, or the newest of that name. Raises `UnknownName`."""
    with broker.store.reading() as look:
        exact = look.job(reference)
        if exact is not None:
            return exact
        named = look.jobs(name=reference, limit=1)
        if named:
            return named[0]
        begun = look.jobs(id_prefix=reference, limit=2) if reference else []
        if len(begun) == 1:
            return begun[0]
        known = [view.id for view in look.jobs(limit=50)]
    raise UnknownName("job", reference, known)


def money_of(broker: Broker, view: JobView) -> Mapping[MoneyKind, Balance]:
    """What the job holds and has spent, by kind of money."""
    with broker.store.reading() as look:
        return look.balance(view.id)


def cancel(broker: Broker, view: JobView) -> JobView:
    """Ask for the job to be stopped, checkpoint first. Cancelling again, or a job that has ended, changes nothing."""
    with broker.store.writing() as tx:
        current = tx.job(view.id) or view
        if current.cancel_requested or current.state.final:
            return current
        return tx.append(view.id, [(None, ev.CancelRequested(by=broker.user))], broker.clock.now())


@dataclass(frozen=True, slots=True)
class More:
    """What a job is to be given: a higher limit in all, or more time in all. None: as it is."""

    max_cost: Money | None = None
    max_duration: timedelta | None = None


def extend(broker: Broker, view: JobView, more: More) -> JobView:
    """Raise a job's limits; a paused job goes on.

    For a running job the money is held here, in the same transaction, and the policies judge it; a paused one is
    judged when it is placed again. Raises `InvalidInput` for limits that are not higher, `NotAllowed` for a job that
    has ended, or when a policy refuses (then nothing changes).
    """
    if more.max_cost is None and more.max_duration is None:
        raise InvalidInput("nothing to extend", hint="say --max-cost or --max-duration")
    now = broker.clock.now()
    with broker.store.writing() as tx:
        current = tx.job(view.id) or view
        if current.state.final or current.cancel_requested:
            raise NotAllowed(f"{view.id} has {current.state.value}; submit it again instead")
        if more.max_cost is not None and current.max_cost is not None and more.max_cost <= current.max_cost:
            raise InvalidInput(f"max_cost is {current.max_cost} already; expected more than that")
        if more.max_duration is not None and more.max_duration <= current.max_duration:
            raise InvalidInput(f"max_duration is {current.max_duration} already; expected more than that")
        seconds = None if more.max_duration is None else more.max_duration.total_seconds()
        body = ev.Extended(by=broker.user, max_cost=more.max_cost, max_duration_seconds=seconds)
        after = tx.append(view.id, [(None, body)], now)
        if after.latest is not None and not after.latest.state.final:
            tx.post(_top_up(broker, tx, after, now))
    return after


def _top_up(broker: Broker, look: Reading, view: JobView, now: datetime) -> list[Entry]:
    """What the running attempt needs held under the new limits, judged. Raises `NotAllowed`."""
    policy, attempt = broker.policy(), view.attempts[-1]
    here = Plan(now, (attempt.placement,), (), 1, None, view.deadline)
    balance, billed = look.balance(view.id), billed_time(view, now)
    found = re_place(
        view, here, policy, lambda action: facts_from(look, policy, action, now), balance, billed=billed, now=now
    )
    if found.answer is not Answer.ALLOW:
        raise NotAllowed("; ".join(f"{v.message} ({v.source})" for v in found.objections))
    return hold_entries(tags_of(view), found.money, Movement.TOP_UP, view.seq, found.window)


def logs(broker: Broker, view: JobView, attempt: int | None = None) -> Iterator[str]:
    """The lines a job's command has printed, attempt by attempt (or of one), oldest first."""
    for candidate in view.attempts:
        if candidate.handle is not None and attempt in (None, candidate.number):
            yield from broker.engine(candidate.engine).logs(candidate.handle)


def waiting_for_people(view: JobView) -> bool:
    """Whether the job goes on only when somebody acts."""
    return view.state in (JobState.AWAITING_APPROVAL, JobState.PAUSED_BUDGET)
