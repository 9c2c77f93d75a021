"""How far attempts are settled is kept, and made anew from the entries, on both databases alike."""

from datetime import timedelta

import pytest

from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.ports import BudgetSpec
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import EGRESS, Movement, Tags, faults, move
from broker.ledger.journal import Posted
from broker.ledger.meter import HOUR, Meter
from broker.reconciler.settlement.batch import post_due
from broker.store import Store
from broker.store.engine import statements
from tests.reconciler.settlement.test_batch import runs
from tests.reconciler.test_settled_periods import told

MINUTE = timedelta(minutes=1)
AN_HOUR = timedelta(hours=1)


def test_a_meter_comes_back_as_it_was_kept(store: Store, clock: ManualClock) -> None:
    large = 98_000_000 * 64 * HOUR * 24 * 300 + 17  # 64 machines of $98 for 300 days, and a little
    meters = {
        1: Meter(Money(5), clock.now(), clock.now() - MINUTE, Money(98_000_000), large, Money(7), ended=True),
        2: Meter.new(clock.now(), Money(1)),
    }
    with store.writing() as tx:
        tx.keep_meters({"j": meters, "k": {}})
    with store.writing() as tx:
        tx.keep_meters({"j": {2: meters[1]}, "l": {1: meters[2]}})
    with store.reading() as look:
        assert look.meters(["j", "k", "m"]) == {"j": {1: meters[1], 2: meters[1]}}
    store.rebuild()
    with store.reading() as look:
        assert look.meters(["j", "l"]) == {}


def test_meters_of_many_jobs_are_read_in_portions_and_none_are_kept_of_none(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [f"j{number}" for number in range(5)]
    with store.writing() as tx:
        tx.keep_meters({})
        tx.keep_meters({"j0": {}})
        tx.keep_meters({job: {1: Meter.new(clock.now(), Money(1))} for job in jobs})
    monkeypatch.setattr(statements, "MAX_PARAMETERS", 2)
    with store.reading() as look:
        assert list(look.meters([*jobs, "nobody"])) == jobs


def test_what_was_posted_is_told_by_quarters_of_an_hour_and_egress_apart(store: Store, clock: ManualClock) -> None:
    start = clock.now()
    tags = Tags("j_%", "ann", attempt=1)
    spans = [(0, 1), (1, 2), (14, 16), (20, 30), (44, 44), (0, 3000), (1, 1), (16, 20)]
    with store.writing() as tx:
        for number, (first, after) in enumerate(spans):
            covers = (start + first * MINUTE, start + after * MINUTE)
            for what in (str(Movement.ADJUST), f"{EGRESS}/data"):
                tx.post(
                    move(
                        Movement.ADJUST, Money(10**number), movement_id=f"j_%/1/{what}/{number}", money=MoneyKind.CASH,
                        at=start, covers=covers, tags=tags,
                    )
                )  # fmt: skip
        other = Tags("j_x", "ann", attempt=1)
        tx.post(
            move(Movement.ADJUST, Money(3), movement_id="j_x/1/adjust/0", money=MoneyKind.CASH, at=start,
                 covers=(start, start), tags=other)
        )  # fmt: skip
    with store.reading() as look:
        found = look.posted("j_%", 1)
        assert look.posted("j_%", 2) == Posted([], Money.ZERO)
    assert found.moved == Money(11_111_111)
    whole = [((end - first) / MINUTE, amount.micros) for first, end, amount in found.time]
    assert sorted(whole) == [(0, 10_000), (0, 1_000_000), (2, 11), (2, 100), (14, 10_001_000), (3000, 100_000)]


def test_corrections_and_recounts_come_to_the_same(store: Store, clock: ManualClock) -> None:
    """Spot machines over midnight; half an hour at another price becomes known late, by then nobody knows how far they
    were settled; then the clock is set back for a moment."""
    clock.time = clock.time.replace(hour=22, minute=7)
    start, midnight = clock.now(), clock.time.replace(hour=0, minute=0) + timedelta(days=1)
    told(store, start, "1", start)
    runs(store, "j-0", start, CapacityType.SPOT)

    def settled() -> None:
        with store.writing() as tx:
            view = tx.job("j-0")
            assert view is not None
            post_due(tx, [view], clock.now())

    for _ in range(20):
        clock.advance(10 * MINUTE)
        settled()
    told(store, midnight - 30 * MINUTE, "7", clock.now())
    clock.advance(MINUTE)
    store.rebuild()
    settled()
    clock.time -= AN_HOUR
    settled()
    clock.time += AN_HOUR
    settled()
    budget = BudgetSpec("b", "day", "UTC", frozenset({"cash"}))
    with store.reading() as look:
        assert faults(look.entries()) == []
        before = look.spent(budget, midnight - timedelta(days=1), midnight)
        after = look.spent(budget, midnight, midnight + timedelta(days=1))
        total = look.balance("j-0")[MoneyKind.CASH].spent
    hours = (midnight - 30 * MINUTE - start) / AN_HOUR
    assert abs(before.micros - (hours + 3.5) * 1_000_000) <= 9
    assert abs(after.micros - 7 * ((clock.now() - midnight) / AN_HOUR) * 1_000_000) <= 9
    assert total == before + after
