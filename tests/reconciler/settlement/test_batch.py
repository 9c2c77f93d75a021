"""Settling many jobs, a few in each look: everyone's turn comes, nobody's money is settled twice, and nobody waits for
prices in vain."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.events import events as ev
from broker.core.events.lifecycle import fold
from broker.core.events.outcomes import Cause
from broker.core.events.views import JobView
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.values.burns import Burn
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import Account, Movement, Sum, Tags, faults
from broker.ledger.journal import Posted
from broker.ledger.meter import Meter
from broker.reconciler.admission.records import hold_entries
from broker.reconciler.settlement.batch import Settling
from broker.reconciler.settlement.settlement import is_due, settle
from broker.store import Store
from tests.billing import one_by_one
from tests.reconciler.rehearsal import MINUTE, offer

EVERY = MINUTE


def runs(store: Store, job_id: str, now: datetime, capacity: CapacityType = CapacityType.ON_DEMAND) -> None:
    """A job whose machine is up from now on, at a dollar an hour."""
    pool = offer(now, "here", capacity)
    placement = Placement(pool, 1, Money.usd("1"), Money.usd("1"), (), None, None, 1.0, 1.0, 0.0)
    submitted = ev.Submitted(job=Job(name=job_id, run="x"), user="ann", max_duration_seconds=86400)
    request = ev.LaunchRequested(key=f"{job_id}-1", engine="stage", placement=placement)
    with store.writing() as tx:
        held = {MoneyKind.CASH: Burn.evenly(Money.usd("24"), (now, now + timedelta(days=1)))}
        tx.post(hold_entries(Tags(job_id, "ann"), {}, held, Movement.HOLD, 1))
        up = [(1, body) for body in (request, ev.Launched(handle=f"{job_id}-1"), ev.MachineUp(since=now))]
        tx.append(job_id, [(None, submitted), *up], now)


def jobs(store: Store) -> list[tuple[JobView, Sequence[Sum], Mapping[int, Meter]]]:
    """Everyone, in the same order each time, as a look sees them."""
    with store.reading() as look:
        views = look.unclosed()
        ids = [view.id for view in views]
        sums, meters = look.sums(ids), look.meters(ids)
    return [(view, sums.get(view.id, ()), meters.get(view.id, {})) for view in views]


def settlements(store: Store) -> dict[str, list[datetime]]:
    """Up to when each job was settled, as often as it was."""
    found: dict[str, list[datetime]] = {}
    with store.reading() as look:
        for entry in look.entries():
            if entry.account is Account.SPENT:
                found.setdefault(entry.tags.job_id, []).append(entry.covers_to)
        assert faults(look.entries()) == []
    return found


def never_asked(pool: Offer, start: datetime, end: datetime) -> Sequence[tuple[datetime, Money]]:
    raise AssertionError("nobody asked what it costs now")


def test_everyones_turn_comes_however_often_those_in_front_are_due_again(store: Store, clock: ManualClock) -> None:
    """Ten jobs, three settled in a look, and all of them due again before the line has moved on once."""
    for number in range(10):
        runs(store, f"j-{number}", clock.now())
    settling = Settling(store, EVERY, at_once=2, at_most=3)
    for _ in range(10):
        clock.advance(EVERY)
        for job in jobs(store):
            settling.note(*job, clock.now())
        settling.settle(clock.now())
    times = settlements(store)
    assert len(times) == 10, "none is starved"
    assert sum(map(len, times.values())) == 30, "no look is wasted"
    start = clock.now() - 10 * EVERY
    for one in times.values():
        waits = [later - before for before, later in pairwise([start, *one, clock.now()])]
        assert max(waits) <= 4 * EVERY, "as long as all others take, three in a look"


@pytest.mark.parametrize("capacity", [CapacityType.ON_DEMAND, CapacityType.SPOT])
def test_whether_it_is_due_is_known_without_asking_for_prices(
    store: Store, clock: ManualClock, capacity: CapacityType
) -> None:
    """Thousands of spot machines are looked at every few seconds."""
    runs(store, "j-0", clock.now(), capacity)
    clock.advance(EVERY)
    (job,) = jobs(store)
    assert is_due(*job, clock.now(), EVERY)
    assert not is_due(*job, clock.now() - timedelta(seconds=1), EVERY)


@given(st.integers(0, 7200), st.integers(0, 7200), st.booleans(), st.sampled_from(["0", "0.001", "1", "98.7"]))
def test_at_a_steady_price_it_is_due_whenever_settling_gives_something(
    settled: int, more: int, gone: bool, price: str
) -> None:
    then, now = NOON + timedelta(seconds=settled), NOON + timedelta(seconds=settled + more)
    view = a_view(Money.usd(price), now if gone else None)
    before = settle(a_view(Money.usd(price), None), [], {}, never_asked, nothing_posted, then, timedelta(0))
    sums = one_by_one(before.entries)
    after = settle(view, sums, before.meters, never_asked, nothing_posted, now, EVERY)
    assert is_due(view, sums, before.meters, now, EVERY) == bool(after.meters)


def nothing_posted(job_id: str, attempt: int) -> Posted:
    raise AssertionError("what was settled is known")


NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def a_view(price: Money, gone_at: datetime | None) -> JobView:
    """A job whose only machine is up since noon, and gone then if it is."""
    capacity = CapacityType.ON_DEMAND if price else CapacityType.OWNED
    pool = replace(offer(NOON, "here", capacity), price=price)
    placement = Placement(pool, 1, price, price, (), None, None, 1.0, 1.0, 0.0)
    submitted = ev.Submitted(job=Job(name="j", run="x"), user="ann", max_duration_seconds=86400)
    bodies: list[tuple[int | None, ev.EventBody]] = [
        (None, submitted),
        (1, ev.LaunchRequested(key="j-1", engine="stage", placement=placement)),
        (1, ev.Launched(handle="j-1")),
        (1, ev.MachineUp(since=NOON)),
    ]
    if gone_at is not None:
        bodies += [(1, ev.AttemptEnded(cause=Cause.COMPLETED)), (1, ev.MachineGone(gone_at=gone_at))]
    return fold([ev.Event("j", seq, NOON, number, body) for seq, (number, body) in enumerate(bodies, 1)])
