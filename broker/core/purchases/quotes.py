"""Quotes: capacity that a provider sells for a period at a total price, and whether a purchase of it can be undone.

A total has two parts: what is paid when it is bought, and what is charged evenly over the period (`recurring`).

Also the interface of providers that sell capacity; their other interfaces are in `broker.core.ports`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, runtime_checkable

from broker.core.market.offers import SkippedRow
from broker.core.records import Record
from broker.core.values.money import Money, divide_half_even, in_microseconds


class PurchaseProduct(StrEnum):
    """The kind of product."""

    CAPACITY_BLOCK = "capacity_block"  # machines for a future period, paid when bought
    CAPACITY_RESERVATION = "capacity_reservation"  # machines from now on, paid by the hour, used or not
    FUTURE_RESERVATION = "future_reservation"  # the same from a later day on
    RESERVED_INSTANCES = "reserved_instances"  # a lower rate for machines of one type
    SAVINGS_PLAN = "savings_plan"  # a lower rate for a promised hourly payment
    COMMITMENT = "commitment"  # machines for a term at a lower rate

    @property
    def holds_machines(self) -> bool:
        """Whether it is capacity, not only a lower price."""
        return self not in (PurchaseProduct.RESERVED_INSTANCES, PurchaseProduct.SAVINGS_PLAN)


class Undo(StrEnum):
    """How a purchase can be undone: never (two people must approve it), until a time, at a price that the provider
    quotes, or at any time without one."""

    NONE = "none"
    UNTIL = "until"
    QUOTE = "quote"
    ANY_TIME = "any_time"


class QuoteRequest(Record):
    """A request for quotes: ``machines`` of one type, or with ``count`` accelerators each, in one region (None: any)
    for ``length``, starting between ``earliest`` and ``latest`` (UTC; None: as the provider chooses). ``products``: the
    kinds wanted."""

    machines: int
    instance_type: str | None = None
    accelerator: str | None = None
    count: int = 0
    length: timedelta
    region: str | None = None
    earliest: datetime | None = None
    latest: datetime | None = None
    products: tuple[PurchaseProduct, ...] = (PurchaseProduct.CAPACITY_BLOCK,)


class CapacityQuote(Record):
    """A provider's quote. ``offering``: the provider's id of it. ``total``: USD for all machines and the whole period.
    ``count``: accelerators per machine. Times are UTC; ``quoted_at``: the time of the quote.

    ``upfront``: the part of the total that is paid when it is bought (USD; None: all of it). ``at_once``: the period
    begins with the order; ``starts`` and ``ends`` are as if it was ordered at ``quoted_at``. ``undo_until``: with
    `Undo.UNTIL`, as of the quote. ``terms``: the provider's name of its payment option and kind."""

    product: PurchaseProduct
    provider: str
    offering: str
    region: str
    zone: str | None = None
    instance_type: str
    accelerator: str
    count: int
    machines: int
    starts: datetime
    ends: datetime
    total: Money
    undo: Undo
    quoted_at: datetime
    upfront: Money | None = None
    at_once: bool = False
    undo_until: datetime | None = None
    terms: str = ""

    @property
    def recurring(self) -> Money:
        """The part of the total that is charged evenly over the period (USD)."""
        return Money.ZERO if self.upfront is None else self.total - self.upfront

    @property
    def paid_upfront(self) -> Money:
        """The part of the total that is paid when it is bought (USD)."""
        return self.total - self.recurring

    @property
    def hourly(self) -> Money:
        """`recurring` per hour, for all machines, rounded half-even (USD)."""
        hour = in_microseconds(timedelta(hours=1))
        return Money(divide_half_even(self.recurring.micros * hour, in_microseconds(self.length)))

    def amount_due(self, begins: datetime, until: datetime) -> Money:
        """The part of `recurring` that falls due from ``begins``, the start of billing, to ``until`` (UTC)."""
        due = min(max(until - begins, timedelta(0)), self.length)
        return self.recurring.share(in_microseconds(due), in_microseconds(self.length))

    def overrun_cost(self, begins: datetime, until: datetime) -> Money:
        """The hourly bill beyond the period of an order that its provider did not end (USD)."""
        return self.hourly.for_duration(max(until - begins - self.length, timedelta(0)))

    @property
    def length(self) -> timedelta:
        return self.ends - self.starts

    @property
    def per_machine_hour(self) -> Money:
        """USD per machine and hour, rounded half-even."""
        hour = in_microseconds(timedelta(hours=1))
        return Money(divide_half_even(self.total.micros * hour, in_microseconds(self.length) * self.machines))

    @property
    def request(self) -> QuoteRequest:
        """The request that yields a quote for the same capacity."""
        return QuoteRequest(
            instance_type=self.instance_type,
            machines=self.machines,
            length=self.length,
            region=self.region,
            earliest=None if self.at_once else self.starts,
            latest=None if self.at_once else self.starts,
            products=(self.product,),
        )

    def same_capacity(self, other: CapacityQuote) -> bool:
        """Whether the other quote is for the same machines in the same zone for the same period, on the same terms."""

        def capacity_key(quote: CapacityQuote) -> tuple[object, ...]:
            period = (quote.length,) if quote.at_once else (quote.starts, quote.ends)
            place = (quote.provider, quote.region, quote.zone, quote.undo, quote.terms)
            return (*place, quote.product, quote.instance_type, quote.machines, quote.at_once, *period)

        return capacity_key(self) == capacity_key(other)

    def binding(self, ceiling: Money) -> str:
        """A short hash of what an approval covers: product, machines, place, period, undo class and ``ceiling``
        (USD), and of its terms of payment, if it has any."""
        period = (self.length,) if self.at_once else (self.starts.isoformat(), self.ends.isoformat())
        payment_terms = (self.terms,) if self.terms else ()
        parts = (
            self.product, self.provider, self.region, self.zone, self.instance_type, self.machines,
            *period, self.undo, ceiling.micros, *payment_terms,
        )  # fmt: skip
        return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:12]


class OrderState(StrEnum):
    """The state of an order at its provider. ``PENDING``: accepted, not paid or not confirmed yet. ``HELD``: paid or
    promised. ``UNDOING``: it is being cancelled or returned. ``OVER``: it has ended or was undone. ``FAILED``: the
    payment failed, ``REFUSED``: the provider cannot deliver it; nothing was bought."""

    PENDING = "pending"
    HELD = "held"
    UNDOING = "undoing"
    OVER = "over"
    FAILED = "failed"
    REFUSED = "refused"


class Order(Record):
    """An order at its provider. ``id``: the provider's; ``word``: the provider's term for its state, such as
    ``payment-pending``. ``billed_from``, ``billed_to``: the time for which its recurring price is charged, as the
    provider says (UTC; None: not yet, or until its end)."""

    id: str
    state: OrderState
    word: str
    billed_from: datetime | None = None
    billed_to: datetime | None = None


ENDS_AT_TERM = "at its end"
"""`UndoTerms.way` for an order that its provider does not end by itself."""


class UndoTerms(Record):
    """The present terms of undoing an order. ``charge``: of the provider (USD), ``refund``: of the upfront payment.
    ``way``: the provider's term for it, such as ``return``; ``reference``:
    its id of this quote; ``until``: when the quote, or the right to undo, ends (UTC; None: unknown)."""

    way: str
    charge: Money = Money.ZERO
    refund: Money = Money.ZERO
    reference: str = ""
    until: datetime | None = None


class SellsProduct(Protocol):
    """One kind of product of one provider. Each method raises `RetryLater`, `LoginMissing`, `MissingExtra` or `GiveUp`.

    ``marked``: its orders carry the key as a tag; otherwise they are recognized by what was ordered and when.
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
        """The provider's products by kind. Sends no request."""
