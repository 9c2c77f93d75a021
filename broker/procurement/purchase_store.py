"""The part of the store that purchases need, and the next event of a purchase written with its ledger entries."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from broker.core.policy.decisions import Decision
from broker.core.purchases.purchase_events import PurchaseEnded, PurchaseEvent, PurchaseFailed, Sold
from broker.core.purchases.purchases import Purchase
from broker.economics.reserve.holdings import Holding
from broker.ledger.entries import Entry
from broker.ledger.journal import Reading
from broker.procurement.money import ended, released, sold


class PurchaseWriting(Reading, Protocol):
    """The part of a store transaction that purchases need."""

    def purchase(self, id: str) -> Purchase | None: ...

    def purchases(self, *, closed: bool = False) -> Sequence[Purchase]: ...

    def append_purchase(self, id: str, event: PurchaseEvent, at: datetime) -> Purchase: ...

    def record(self, decision: Decision) -> None: ...

    def post(self, entries: tuple[Entry, ...]) -> None: ...

    def add_holding(self, holding: Holding, *, by: str, at: datetime) -> int: ...

    def remove_holding(self, number: int, *, by: str, at: datetime) -> None: ...


class PurchaseStore(Protocol):
    """The part of the store that purchases need."""

    def writing(self) -> AbstractContextManager[PurchaseWriting]: ...

    def purchase(self, id: str) -> Purchase: ...

    def purchases(self, *, closed: bool = False) -> Sequence[Purchase]: ...


def appended(
    store: PurchaseStore, purchase: Purchase, event: PurchaseEvent, now: datetime, entries: tuple[Entry, ...] = ()
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
