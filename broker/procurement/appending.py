"""Writes the next event of a purchase with its ledger entries, unless another process was faster."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from broker.core.purchases.purchase_events import PurchaseEnded, PurchaseEvent, PurchaseFailed, Sold
from broker.core.purchases.purchases import Purchase
from broker.ledger.entries import Entry
from broker.procurement.money import ended, released, sold

if TYPE_CHECKING:
    from broker.store.store import Store


def appended(
    store: Store, purchase: Purchase, event: PurchaseEvent, now: datetime, entries: tuple[Entry, ...] = ()
) -> Purchase:
    """Append the event and post the entries, unless the purchase has changed meanwhile; returns its current state."""
    with store.writing() as tx:
        current = tx.purchase(purchase.id)
        if current is None or current.seq != purchase.seq:
            return purchase if current is None else current
        tx.post(entries)
        if isinstance(event, PurchaseFailed):
            tx.post(released(purchase, now))
        if isinstance(event, PurchaseEnded):
            tx.post(ended(purchase, now))
        if isinstance(event, Sold):
            tx.post(sold(purchase, event.proceeds, now))
            if purchase.holding is not None:
                tx.remove_holding(purchase.holding, by=purchase.sold_by, at=now)
        return tx.append_purchase(purchase.id, event, now)
