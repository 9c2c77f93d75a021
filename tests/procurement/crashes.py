"""Kills a buyer at a chosen moment: before or after a write to the store, before or after a call to the provider."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from broker.app.capacity.purchases import buyer, find_seller
from broker.app.wiring import Broker
from broker.core.notices import Notice
from broker.core.purchases.purchases import Purchase
from broker.procurement.buyer import CapacityBuyer

MOMENTS = 24  # more than any purchase has


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


def advance_and_die(broker: Broker, purchase: Purchase, at: int) -> None:
    """The buyer is killed at that moment, if it comes to it."""
    reaper = Reaper(at)
    try:
        mortal(broker, reaper).advance(purchase.id)
    except BuyerKilled:
        return
    assert len(reaper.moments) < at, "the reaper missed its moment"


def advance_beside(broker: Broker, other: Broker, purchase: Purchase, at: int) -> None:
    """One broker is stopped at that moment, the other looks after the purchase meanwhile, and the first one goes on."""

    class Pause(Reaper):
        def moment(self, name: str) -> None:
            self.moments.append(name)
            if len(self.moments) == at and name != "before a commit":  # the other one would wait for the store
                buyer(other).advance(purchase.id)

    mortal(broker, Pause()).advance(purchase.id)


def moments_of(broker: Broker, purchase: Purchase) -> set[str]:
    """The moments of an undisturbed purchase; fewer than `MOMENTS`."""
    reaper = Reaper()
    mortal(broker, reaper).advance(purchase.id)
    assert len(reaper.moments) < MOMENTS
    return {*reaper.moments}
