"""Sums of what closed jobs used: every report says the same before and after jobs are folded into them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from broker.core.events import events as ev
from broker.core.events.events import EventBody
from broker.core.events.outcomes import Cause, JobState
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags, move
from broker.store import Store
from broker.store.ledger import use_slots
from broker.store.ledger.spending import SpendingPeriod, Spent
from broker.store.schema.jobs import STILL_THERE, MachineTimeRow
from broker.store.schema.ledger import UseSumRow
from tests.past import HOUR, started

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
FIRST = datetime(2025, 11, 20, tzinfo=UTC)
DIMENSIONS = ("", "team", "region,capacity_type", "user,accelerator", "job")
MICROS = st.integers(0, 1_800_000_000).map(lambda second: second * 1_000_000)


def offer(place: str, kind: CapacityType) -> Offer:
    money = MoneyKind.AMORTISED if kind is CapacityType.OWNED else MoneyKind.CASH
    return Offer(
        "cloud", place, place, "box", "H100", 8, kind, Money.usd("10"), FIRST, "api", engine="stage", money=money
    )


def lived(store: Store, number: int, chance: random.Random) -> str:
    """A job that ran one to three times, each time somewhere else or at the same place, and is closed."""
    job_id, at = f"job-{number:02d}", FIRST + chance.random() * timedelta(days=90)
    job = Job(name=job_id, run="x", team=f"team-{number % 3}")
    items: list[tuple[int | None, EventBody]] = [
        (None, ev.Submitted(job=job, user=f"user-{number % 2}", max_duration_seconds=3600))
    ]
    spent = []
    for attempt in range(1, chance.randint(1, 3) + 1):
        place = offer(chance.choice(("here", "there")), chance.choice((CapacityType.SPOT, CapacityType.OWNED)))
        rate = Money.usd("10")
        placement = Placement(place, 2, rate, rate, (), None, None, 1.0, 1.0, 0.0)
        key, gone = f"{job_id}-{attempt}", at + chance.choice((1, 9, 300)) * HOUR * chance.random()
        items += [
            (attempt, ev.LaunchRequested(key=key, engine="stage", placement=placement)),
            (attempt, ev.Launched(handle=key)),
            (attempt, ev.MachineUp(since=at)),
            (attempt, ev.AttemptEnded(cause=Cause.PREEMPTED)),
            (attempt, ev.MachineGone(gone_at=gone)),
        ]
        tags = Tags(job_id, f"user-{number % 2}", job.team, workload=job.workload.value, attempt=attempt)
        spent += [
            move(
                Movement.SETTLE, Money(chance.randrange(1, 10**8)), movement_id=f"{key}/{n}", money=placement.money,
                at=end, covers=(start, end), tags=tags,
            )
            for n, (start, end) in enumerate(pairwise((at, at + (gone - at) / 3, gone)))
        ]  # fmt: skip
        at = gone + HOUR
    items += [(None, ev.JobEnded(state=JobState.FAILED)), (None, ev.JobClosed())]
    with store.writing() as tx:
        tx.append(job_id, items, at)
        tx.post([entry for entries in spent for entry in entries])
    return job_id


def told(store: Store, dimension: str, since: datetime | None, until: datetime | None) -> dict[str, Spent]:
    with store.reading() as look:
        return dict(look.spent_by(dimension, SpendingPeriod(since, until, NOW)))


def alike(one: dict[str, Spent], other: dict[str, Spent]) -> bool:
    def exact(found: dict[str, Spent]) -> object:
        return {name: (spent.money, spent.attempts, spent.jobs, spent.bought) for name, spent in found.items()}

    def hours(found: dict[str, Spent]) -> dict[str, float]:
        return {name: spent.gpu_hours + spent.machine_hours for name, spent in found.items()}

    return exact(one) == exact(other) and hours(one) == pytest.approx(hours(other))


def in_sums(store: Store) -> list[int | None]:
    with store._database.reading() as connection:
        return [row.folded for row in connection.execute(select(MachineTimeRow))]


def test_every_report_says_what_it_said_before_jobs_were_folded(store: Store) -> None:
    chance = random.Random(7)
    for number in range(25):
        lived(store, number, chance)
    started(store, 1, NOW - HOUR)
    periods: list[tuple[datetime | None, datetime | None]] = [(None, None), (FIRST, datetime(2026, 2, 1, tzinfo=UTC))]
    for _ in range(6):
        moments = sorted(FIRST + chance.random() * timedelta(days=110) for _ in range(2))
        start, end = (moment.replace(hour=0, minute=0, second=0, microsecond=0) for moment in moments)
        periods += [(moments[0], moments[1]), (start, end), (None, end)]
    asked = [(dimension, *period) for dimension in DIMENSIONS for period in periods]
    before = [told(store, *one) for one in asked]
    assert store.fold_use(NOW) > 0
    folded = in_sums(store)
    assert len({one % 2**42 for one in folded if one}) > 5
    assert folded.count(None) == 1, "only the one that still runs"
    for one, wanted in zip(asked, before, strict=True):
        assert alike(told(store, *one), wanted), one
    assert store.fold_use(NOW) == 0, "nothing is left to do"
    store.prove()
    assert not any(in_sums(store))
    assert alike(told(store, "team", None, None), before[asked.index(("team", None, None))])


def test_a_job_leaves_the_sums_when_something_is_posted_about_it(store: Store) -> None:
    chance = random.Random(1)
    one, other = lived(store, 1, chance), lived(store, 2, chance)
    store.fold_use(NOW)
    before = told(store, "", None, None)[""]
    tags = Tags(one, "user-1", "team-1", attempt=1)
    covers = (FIRST, NOW)
    late = move(
        Movement.SETTLE, Money.usd("5"), movement_id="late", money=MoneyKind.CASH, at=NOW, covers=covers, tags=tags
    )
    with store.writing() as tx:
        tx.post(late)
    with store._database.reading() as connection:
        folded = {row.job_id for row in connection.execute(select(MachineTimeRow)) if row.folded is not None}
    assert folded == {other}
    after = told(store, "", None, None)[""]
    assert sum(after.money.values(), Money.ZERO) == sum(before.money.values(), Money.ZERO) + Money.usd("5"), (
        "counted once, and as it is now"
    )
    assert (after.jobs, after.attempts) == (before.jobs, before.attempts)
    store.fold_use(NOW)
    assert alike(told(store, "", None, None), {"": after})
    with store.writing() as tx:
        tx.renew([one, other])
    with store._database.reading() as connection:
        assert connection.execute(select(UseSumRow)).all() == []


@given(MICROS, MICROS, MICROS, MICROS)
def test_a_slot_lies_within_a_period_or_outside_or_the_period_cuts_it(a: int, b: int, c: int, d: int) -> None:
    (first, last), (left, right) = sorted((a, b)), sorted((c, d))
    enclosing = use_slots.slots_of(first, last)
    ranges = [slot for slot in enclosing for start, end in use_slots.covered(left, right) if start <= slot < end]
    assert len(ranges) <= 1, "counted once"
    inside = left <= first and last < right
    outside = last < left or first >= right
    if enclosing[0] not in use_slots.cut(left, right):
        assert (len(ranges) == 1, not outside) == (inside, inside)
    else:
        assert not ranges
    assert any(start <= enclosing[-1] < end for start, end in use_slots.covered(-STILL_THERE, STILL_THERE))
