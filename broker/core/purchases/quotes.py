"""Quotes: capacity that a provider sells for a period at a total price, and whether a purchase of it can be undone."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from broker.core.values.money import Money, divide_half_even, in_microseconds


class PurchaseProduct(StrEnum):
    """The kind of product."""

    CAPACITY_BLOCK = "capacity_block"  # machines for a future period, paid when bought


class Undo(StrEnum):
    """Whether a purchase can be undone. With `NONE`, two people must approve it."""

    NONE = "none"
    ANY_TIME = "any_time"


class PurchaseValue(BaseModel):
    """Base of the values of purchases: immutable, unknown fields rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_timedelta="float", defer_build=True)


class QuoteRequest(PurchaseValue):
    """A request for quotes: ``machines`` of one type, or with ``count`` accelerators each, in one region (None: any)
    for ``length``, starting between ``earliest`` and ``latest`` (UTC; None: as the provider chooses)."""

    machines: int
    instance_type: str | None = None
    accelerator: str | None = None
    count: int = 0
    length: timedelta
    region: str | None = None
    earliest: datetime | None = None
    latest: datetime | None = None


class CapacityQuote(PurchaseValue):
    """A provider's quote. ``offering``: the provider's id of it. ``total``: USD for all machines and the whole period.
    ``count``: accelerators per machine. Times are UTC; ``quoted_at``: the time of the quote."""

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
            earliest=self.starts,
            latest=self.starts,
        )

    def same_capacity(self, other: CapacityQuote) -> bool:
        """Whether the other quote is for the same machines in the same zone for the same period."""

        def what(quote: CapacityQuote) -> tuple[object, ...]:
            place = (quote.provider, quote.region, quote.zone, quote.undo)
            return (*place, quote.product, quote.instance_type, quote.machines, quote.starts, quote.ends)

        return what(self) == what(other)

    def binding(self, ceiling: Money) -> str:
        """A short hash of what an approval covers: product, machines, place, period, undo class and ``ceiling``
        (USD)."""
        what = (
            self.product, self.provider, self.region, self.zone, self.instance_type, self.machines,
            self.starts.isoformat(), self.ends.isoformat(), self.undo, ceiling.micros,
        )  # fmt: skip
        return hashlib.sha256("\n".join(map(str, what)).encode()).hexdigest()[:12]


class OrderState(StrEnum):
    """The state of an order at its provider. ``PENDING``: accepted, not paid yet. ``HELD``: paid; the capacity is
    available for its period. ``OVER``: its period has ended. ``FAILED``: not paid; there is no capacity."""

    PENDING = "pending"
    HELD = "held"
    OVER = "over"
    FAILED = "failed"


class Order(PurchaseValue):
    """An order at its provider. ``id``: the provider's; ``word``: the provider's term for its state, such as
    ``payment-pending``."""

    id: str
    state: OrderState
    word: str
