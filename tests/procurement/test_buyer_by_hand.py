"""When the buyer gives a purchase up and looks for an order without an answer, to the second, on a store by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from broker.core.purchases.purchase_events import PurchaseEvent
from broker.core.purchases.purchases import Purchase, PurchaseState, apply_event
from broker.core.values.clock import ManualClock
from broker.procurement.buyer import CapacityBuyer
from tests.core.purchases.test_purchase_steps import NOW, PATHS, bought

SECOND = timedelta(seconds=1)


@dataclass
class OnePurchase:
    """A store with one purchase, and a provider that lists no orders."""

    kept: Purchase
    looked: int = 0
    marked: bool = True
    repeats_for: timedelta = timedelta(0)

    @contextmanager
    def writing(self) -> Iterator[OnePurchase]:
        yield self

    def purchase(self, id: str) -> Purchase:
        return self.kept

    def post(self, entries: object) -> None:
        pass

    def append_purchase(self, id: str, event: PurchaseEvent, at: datetime) -> Purchase:
        self.kept = apply_event(self.kept, event, at)
        return self.kept

    def find_orders(self, quote: object, mark: str) -> list[object]:
        self.looked += 1
        return []


def advanced(purchase: Purchase, at: datetime) -> tuple[Purchase, int]:
    store: Any = OnePurchase(purchase)
    buyer = CapacityBuyer(store, lambda quote: store, lambda look: store, ManualClock(at), lambda notice: None)
    return buyer.advance(purchase.id), store.looked


def test_an_order_is_looked_for_fifty_seconds_after_it_was_sent() -> None:
    sent = bought(*PATHS[PurchaseState.ORDERING])
    assert sent.sent_at == NOW + timedelta(minutes=3)
    assert advanced(sent, sent.sent_at + 49 * SECOND) == (sent, 0)
    found, looked = advanced(sent, sent.sent_at + 50 * SECOND)
    assert (found.state, looked > 0) == (PurchaseState.UNKNOWN, True)
