"""Kills a buyer at a chosen moment: before or after a write to the store, before or after a call to the provider."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from broker.app.capacity.purchases import find_seller
from broker.app.wiring import Broker
from broker.core.notices import Notice
from broker.procurement.buyer import CapacityBuyer


class BuyerKilled(BaseException):
    """What a killed process does not catch either."""


class Reaper:
    """Kills at the ``at``-th moment (1, 2, …); 0 never. ``moments``: the names of those that passed."""

    def __init__(self, at: int = 0) -> None:
        self._at = at
        self.moments: list[str] = []

    def moment(self, name: str) -> None:
        self.moments.append(name)
        if len(self.moments) == self._at:
            raise BuyerKilled(name)


class _Store:
    def __init__(self, store: Any, reaper: Reaper) -> None:
        self._store = store
        self._reaper = reaper

    def purchase(self, id: str) -> Any:
        return self._store.purchase(id)

    def purchases(self, *, closed: bool = False) -> Any:
        return self._store.purchases(closed=closed)

    @contextmanager
    def writing(self) -> Iterator[Any]:
        self._reaper.moment("before a write")
        with self._store.writing() as tx:
            yield tx
            self._reaper.moment("before a commit")
        self._reaper.moment("after a write")


class _Seller:
    def __init__(self, seller: Any, reaper: Reaper) -> None:
        self._seller = seller
        self._reaper = reaper
        self.marked = seller.marked
        self.repeats_for = seller.repeats_for
        self.ends_itself = seller.ends_itself

    def quotes(self, request: Any) -> Any:
        return self._called("quotes", request)

    def try_order(self, quote: Any, key: str) -> Any:
        return self._called("try_order", quote, key)

    def order(self, quote: Any, key: str) -> Any:
        return self._called("order", quote, key)

    def find_orders(self, quote: Any, key: str) -> Any:
        return self._called("find_orders", quote, key)

    def undo_terms(self, quote: Any, order: Any) -> Any:
        return self._called("undo_terms", quote, order)

    def undo(self, quote: Any, order: Any, terms: Any) -> Any:
        return self._called("undo", quote, order, terms)

    def _called(self, what: str, *arguments: Any) -> Any:
        self._reaper.moment(f"before {what}")
        answer = getattr(self._seller, what)(*arguments)
        self._reaper.moment(f"after {what}")
        return answer


def mortal(broker: Broker, reaper: Reaper) -> CapacityBuyer:
    """A buyer of that broker that the reaper may kill."""

    def tell(notice: Notice) -> None:
        reaper.moment("before a notice")
        broker.store.outbox.add(notice, tuple(broker.settings.notify), broker.clock.now())

    store: Any = _Store(broker.store, reaper)
    return CapacityBuyer(
        store, lambda quote: _Seller(find_seller(broker, quote), reaper), broker.policy, broker.clock, tell
    )
