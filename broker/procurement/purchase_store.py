"""The part of the store that purchases need."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from broker.core.policy.decisions import Decision
from broker.core.purchases.purchase_events import PurchaseEvent
from broker.core.purchases.purchases import Purchase
from broker.economics.reserve.holdings import Holding
from broker.ledger.entries import Entry
from broker.ledger.journal import Reading


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
