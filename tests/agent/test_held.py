"""How long a lease holds, whatever the clocks of broker, object store and node show."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from broker.agent.clock import NodeClock
from broker.agent.formats import Lease
from broker.agent.mailbox import HeldLease

START = datetime(2026, 3, 1, 0, 0, 0, 1, tzinfo=UTC)
apart = st.timedeltas(min_value=timedelta(days=-3), max_value=timedelta(days=3))
took = st.floats(0, 4)


class SkewedClocks:
    """True seconds since ``START``, and what the clocks make of them. The node's wall clock is today's, and so months
    off. ``whole``: the store tells whole seconds."""

    def __init__(self, broker: timedelta, store: timedelta, *, whole: bool) -> None:
        self.true = 0.0
        self._broker, self._store, self._whole = broker, store, whole

    def running(self) -> float:
        return 1000 + self.true

    def brokers(self) -> datetime:
        return START + timedelta(seconds=self.true) + self._broker

    def stores(self) -> datetime:
        at = START + timedelta(seconds=self.true) + self._store
        return at.replace(microsecond=0) if self._whole else at

    def lease(self, paid_for: float, takes: float) -> Lease:
        """Granted now; ``takes``: seconds until the store has it."""
        renewed_at = self.brokers()
        self.true += takes
        return Lease(renewed_at + timedelta(seconds=paid_for), renewed_at=renewed_at, stored_at=self.stores())

    def date(self, held: HeldLease, before: float, after: float) -> None:
        """Something is written: the store dates it ``before`` seconds after it was asked, and answers ``after``."""
        asked = self.running()
        self.true += before
        at = self.stores()
        self.true += after
        held.dated(at, asked)


@given(apart, apart, st.booleans(), took, st.floats(0, 40_000), took, took, st.floats(0, 30_000))
def test_it_ends_when_the_money_does(
    broker: timedelta,
    store: timedelta,
    whole: bool,
    wrote: float,
    waited: float,
    before: float,
    after: float,
    on: float,
) -> None:
    world = SkewedClocks(broker, store, whole=whole)
    granted = world.lease(paid_for=50_000, takes=wrote)
    world.true += waited  # the machine comes up, and its job waits for it
    held = HeldLease(granted, NodeClock(), world.running)
    world.date(held, before, after)
    world.true += on
    left = 50_000 - world.true
    late, early = wrote, before + 2  # whole seconds, twice
    assert held.seconds_until(granted.paid_until or START) <= left + late + 0.001
    assert held.seconds_until(granted.paid_until or START) >= left - early - 0.001
    world.true = 50_000 + late + 0.001
    assert (held.over() or ("",))[0] == "paid_until"


def test_a_new_date_counts_when_it_came_quickly_and_a_suspended_machine_learns_the_time_by_it() -> None:
    world = SkewedClocks(timedelta(hours=-5), timedelta(0), whole=False)
    granted = world.lease(3600, 0)
    slept = [0.0]

    def running() -> float:
        return world.running() - slept[0]

    held = HeldLease(granted, NodeClock(), running)
    assert held.needs_date
    held.dated(world.stores(), running())
    assert not held.needs_date
    world.true += 61
    assert held.needs_date
    held.dated(world.stores(), running() - 50)  # it hung; what the store said before says more
    assert abs(held.seconds_until(granted.paid_until or START) - (3600 - 61)) < 1
    world.true += 3600
    slept[0] = 3600  # in which nothing of it ran
    assert held.over() is None
    held.dated(world.stores(), running())
    assert held.over() is not None


def test_on_a_simulated_clock_that_clock_counts() -> None:
    """Broker and node share it, and a second of the wall is an hour there."""
    origin = datetime.now(UTC)
    clock = NodeClock(origin, START, 3600.0)
    held = HeldLease(Lease(START + timedelta(days=400), renewed_at=START, stored_at=origin), clock, lambda: 0.0)
    held.dated(origin + timedelta(days=1), 0.0)
    assert held.over() is None


def test_before_the_store_has_dated_anything_the_nodes_clock_is_all_there_is() -> None:
    now = datetime.now(UTC)
    for stored_at in (None, now):
        held = HeldLease(Lease(now + timedelta(hours=1), renewed_at=now, stored_at=stored_at), NodeClock(), lambda: 0.0)
        assert abs(held.seconds_until(now + timedelta(hours=1)) - 3600) < 60
        assert held.over() is None
