"""Quotes: capacity that a provider would sell now, for a stretch of time and a total price, and how a purchase of it
can be undone."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from broker.core.values.money import Money, divide_half_even, in_microseconds


class PurchaseProduct(StrEnum):
    """What is bought."""

    CAPACITY_BLOCK = "capacity_block"  # machines for some future days, paid when bought


class Undo(StrEnum):
    """Whether a purchase can be undone. With `NONE` two people have to approve it."""

    NONE = "none"
    ANY_TIME = "any_time"


class PurchaseValue(BaseModel):
    """Base of the values of purchases: immutable, unknown fields rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_timedelta="float", defer_build=True)


class QuoteRequest(PurchaseValue):
    """What is wanted: ``machines`` of one type, or with ``count`` of an accelerator each, in one region (None: in every
    region) for ``length``, beginning between ``earliest`` and ``latest`` (UTC; None: as the provider chooses)."""

    machines: int
    instance_type: str | None = None
    accelerator: str | None = None
    count: int = 0
    length: timedelta
    region: str | None = None
    earliest: datetime | None = None
    latest: datetime | None = None


class CapacityQuote(PurchaseValue):
    """What a provider would sell. ``offering``: the provider's id of it. ``total``: USD for all machines and the whole
    time. ``count``: accelerators of one machine. Times are UTC; ``quoted_at``: when the provider said so."""

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
        """USD for one machine and hour."""
        hour = in_microseconds(timedelta(hours=1))
        return Money(divide_half_even(self.total.micros * hour, in_microseconds(self.length) * self.machines))

    @property
    def request(self) -> QuoteRequest:
        """What to ask for in order to be offered the same again."""
        return QuoteRequest(
            instance_type=self.instance_type,
            machines=self.machines,
            length=self.length,
            region=self.region,
            earliest=self.starts,
            latest=self.starts,
        )

    def same_capacity(self, other: CapacityQuote) -> bool:
        """Whether the other quote is for the same machines, in the same zone, for the same time."""

        def what(quote: CapacityQuote) -> tuple[object, ...]:
            place = (quote.provider, quote.region, quote.zone, quote.undo)
            return (*place, quote.product, quote.instance_type, quote.machines, quote.starts, quote.ends)

        return what(self) == what(other)

    def binding(self, ceiling: Money) -> str:
        """What an approval is bound to: product, machines, place, time, undo class and the most it may cost. A short
        hash, which people can compare."""
        what = (
            self.product, self.provider, self.region, self.zone, self.instance_type, self.machines,
            self.starts.isoformat(), self.ends.isoformat(), self.undo, ceiling.micros,
        )  # fmt: skip
        return hashlib.sha256("\n".join(map(str, what)).encode()).hexdigest()[:12]


class OrderState(StrEnum):
    """What became of an order at its provider. ``PENDING``: accepted, not paid yet. ``HELD``: paid; the capacity is
    ours for its time. ``OVER``: that time has passed. ``FAILED``: not paid, nothing is ours."""

    PENDING = "pending"
    HELD = "held"
    OVER = "over"
    FAILED = "failed"


class Order(PurchaseValue):
    """An order at its provider. ``id``: the provider's; ``word``: the provider's own state, such as
    ``payment-pending``."""

    id: str
    state: OrderState
    word: str
