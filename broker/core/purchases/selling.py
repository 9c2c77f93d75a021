"""The interface of a provider from which capacity can be bought; the other abilities are in `broker.core.ports`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Protocol, runtime_checkable

from broker.core.market.offers import SkippedRow
from broker.core.purchases.quotes import CapacityQuote, Order, PurchaseProduct, QuoteRequest, UndoTerms


class SellsProduct(Protocol):
    """One kind of product of one provider. Each method raises `RetryLater`, `LoginMissing`, `MissingExtra` or `GiveUp`.

    ``marked``: its orders carry the key as a tag; otherwise they are recognised by what was ordered and when.
    ``repeats_for``: for how long after its first call an order may be sent again with the same key without buying
    twice; zero: never. ``ends_itself``: the provider ends an order at the end of its period; otherwise it is undone
    then, because it would go on to be billed.
    """

    marked: bool
    repeats_for: timedelta
    ends_itself: bool

    def quotes(self, request: QuoteRequest) -> Iterator[CapacityQuote | SkippedRow]:
        """Quotes for the request, as of now. Read-only. Raises `InvalidInput` for a request that it can never serve."""

    def try_order(self, quote: CapacityQuote, key: str) -> None:
        """If the provider can, let it validate the order without executing it (a dry run). Buys nothing."""

    def order(self, quote: CapacityQuote, key: str) -> Order:
        """Buy the quote's offering under ``key``. Not idempotent unless ``repeats_for`` says so. After `OutcomeUnknown`
        the order may have been executed; after every other error it was not."""

    def find_orders(self, quote: CapacityQuote, key: str) -> Sequence[Order]:
        """The provider's orders with the tag ``key``; for products that are not ``marked``, all orders of the same
        capacity placed since `CapacityQuote.quoted_at`. Read-only."""

    def undo_terms(self, quote: CapacityQuote, order: Order) -> UndoTerms:
        """The present cost of undoing the order. Raises `Refused` with the reason if it cannot be undone."""

    def undo(self, quote: CapacityQuote, order: Order, terms: UndoTerms) -> None:
        """Cancel or return the order on these terms. Idempotent by the order's id. After `OutcomeUnknown` it may have
        been executed; after every other error it was not."""


@runtime_checkable
class SellsCapacity(Protocol):
    """A provider from which capacity can be bought."""

    @property
    def products(self) -> Mapping[PurchaseProduct, SellsProduct]:
        """Its products by kind. Sends no request."""
