"""Watches are kept, and move on one step at a time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from broker.core.market.offers import CapacityType
from broker.core.market.watches import Trigger, Watch, WatchState
from broker.core.notices import Notice
from broker.core.values.money import Money
from broker.store import Store

T = datetime(2026, 11, 21, 12, tzinfo=UTC)
WATCH = Watch(
    "cheap", Trigger.BELOW, T, "ada", machines=("H100:8",), providers=("aws",), regions=("us-*",),
    capacity_types=(CapacityType.SPOT,), price=Money(2_000_001), targets=("ops",), pause=timedelta(minutes=5),
)  # fmt: skip
RISE = Watch("rise", Trigger.RISES, T, "ada", part=0.2, within=timedelta(hours=24))


def test_they_read_back_as_they_were(store: Store) -> None:
    assert store.watches.add(WATCH)
    assert store.watches.add(RISE)
    assert not store.watches.add(replace(RISE, name="cheap"))
    assert store.watches.all() == [(WATCH, WatchState()), (RISE, WatchState())]
    assert store.watches.remove("cheap")
    assert not store.watches.remove("cheap")
    assert [watch for watch, _ in store.watches.all()] == [RISE]


def test_state_and_notice_are_kept_together_or_not_at_all(store: Store) -> None:
    store.watches.add(WATCH)
    before, after = WatchState(), WatchState(("",), T, T, 1, "$1.90", True, T)
    notice = Notice("watch/cheap/1", "cheap", "")
    assert store.watches.move(WATCH, before, after, notice=notice, targets=["ops"], at=T)
    assert store.watches.all() == [(WATCH, after)]
    assert len(store.outbox.under("watch/cheap/")) == 1
    again = Notice("watch/cheap/1-again", "cheap", "")
    assert not store.watches.move(WATCH, before, after, notice=again, targets=["ops"], at=T)  # moved by another since
    assert len(store.outbox.under("watch/cheap/")) == 1


def test_what_was_removed_or_made_anew_does_not_move(store: Store) -> None:
    store.watches.add(WATCH)
    store.watches.remove("cheap")
    assert not store.watches.move(WATCH, WatchState(), WatchState(seen="x"), notice=None, targets=(), at=T)
    store.watches.add(replace(WATCH, price=Money(5)))
    assert not store.watches.move(WATCH, WatchState(), WatchState(seen="x"), notice=None, targets=(), at=T)
