"""Offers: priced, dated capacity; and the pool an offer belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from broker.core.market.accelerators import card_share
from broker.core.market.shares import MachineShare
from broker.core.values.money import Money

LOCAL_ENGINE = "local"  # the engine of this machine, whose capacity is divided among jobs
SANDBOX = "sandbox"  # the provider whose capacity, prices and money are simulated


class CapacityType(StrEnum):
    """How capacity is obtained."""

    OWNED = "owned"
    RESERVED = "reserved"
    ON_DEMAND = "on_demand"
    SPOT = "spot"

    @classmethod
    def _missing_(cls, value: object) -> CapacityType | None:
        """Accepts the displayed form ``on-demand``, in any case."""
        plain = value.strip().lower().replace("-", "_") if isinstance(value, str) else None
        return next((kind for kind in cls if kind.value == plain), None)


BOUGHT = (CapacityType.OWNED, CapacityType.RESERVED)
"""Capacity that is bought for a time, used or not; all other is rented while it is used."""


class Availability(StrEnum):
    """Whether the capacity is available now, as its provider reports."""

    AVAILABLE = "available"
    UNAVAILABLE = "unavailable"
    NO_QUOTA = "no_quota"
    UNKNOWN = "unknown"


class Interconnect(StrEnum):
    """The connection between the accelerators of one machine."""

    NVLINK = "nvlink"
    PCIE = "pcie"
    NONE = "none"


class MoneyKind(StrEnum):
    """Which kind of money pays for an hour of the offer: cash is spent because of the decision, amortized money was
    paid before, sandbox money is simulated."""

    CASH = "cash"
    AMORTISED = "amortised"
    SANDBOX = "sandbox"


class Doubt(StrEnum):
    """Why an offer is suspicious. No job starts on it until a poll reports it as expected again or a person accepts
    it."""

    UNTOLD = "untold"
    TOO_LOW = "too_low"
    TOO_HIGH = "too_high"
    SUDDEN = "sudden"
    ABOVE_ON_DEMAND = "above_on_demand"
    UNCOMPARED = "uncompared"

    @property
    def text(self) -> str:
        """A few words for people."""
        return _DOUBTS[self]


_DOUBTS = {
    Doubt.UNTOLD: "missing from the last poll, which is suspect",
    Doubt.TOO_LOW: "far below the usual price of such GPUs",
    Doubt.TOO_HIGH: "far above the usual price of such GPUs",
    Doubt.SUDDEN: "the price jumped",
    Doubt.ABOVE_ON_DEMAND: "spot costs more than on demand",
    Doubt.UNCOMPARED: "no price of such machines to compare it with",
}


@dataclass(frozen=True, slots=True)
class Billing:
    """Metering of a provider: at least ``minimum``, then whole steps of ``granularity`` (> 0)."""

    minimum: timedelta = timedelta(0)
    granularity: timedelta = timedelta(seconds=1)
    # Data, not code, for exceptions such as AWS not charging a first hour of spot that AWS itself interrupted.
    free_if_interrupted_within: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Offer:
    """One machine offered at a price per hour.

    ``price``: USD per hour for the whole machine, paid *because of the decision* (0 only for owned capacity and prepaid
    reserved hours); None if unknown. ``amortised``: showback value per hour of prepaid capacity. ``as_of``: when the
    price was valid (UTC). ``source``: its origin. ``interruption_rate``: expected interruptions per hour, if the
    provider gives or implies one. ``slots``: machines available at once, None without a known bound. ``engine``: the
    engine that can run it. ``doubt``: why the store does not believe it, with the figures in ``doubt_detail``; None if
    it does. ``whole``: for a part of a machine that one job has: the whole machine; all other fields then describe the
    part. ``left``: for a machine that jobs share: the part that is free; None if not determined. ``disk``: for an offer
    as one job has it: USD per hour of the disk that is rented with the machine, which ``price`` contains.
    """

    provider: str
    region: str
    zone: str | None
    instance_type: str
    accelerator: str | None
    count: int
    capacity_type: CapacityType
    price: Money | None
    as_of: datetime
    source: str
    term_months: int | None = None
    amortised: Money | None = None
    cpus: float | None = None
    memory_gib: float | None = None
    interconnect: Interconnect | None = None
    availability: Availability = Availability.UNKNOWN
    unavailable_because: str = ""
    score: float | None = None
    interruption_rate: float | None = None
    slots: int | None = None
    engine: str | None = None
    money: MoneyKind = MoneyKind.CASH
    reference: bool = False
    billing: Billing = field(default_factory=Billing)
    max_age: timedelta | None = None
    doubt: Doubt | None = None
    doubt_detail: str = ""
    whole: MachineShare | None = None
    left: MachineShare | None = None
    disk: Money = Money.ZERO

    @property
    def divided(self) -> bool:
        """Whether several jobs may share the machine, each with a part of it: this one local machine, with known CPUs
        and memory."""
        is_local = self.engine == LOCAL_ENGINE and self.capacity_type is CapacityType.OWNED and self.slots == 1
        return is_local and self.cpus is not None and self.memory_gib is not None

    @property
    def has(self) -> MachineShare:
        """The size of the machine, or of the part of it; unknown figures count as 0."""
        return MachineShare.of(self.cpus or 0.0, self.memory_gib or 0.0, self.accelerator, self.count)

    @property
    def capacity(self) -> str:
        """The name of the limited capacity: the machine itself if jobs share it, else the pool. Offers with the same
        name use the same capacity."""
        if self.whole is None and not self.divided:
            return self.pool
        return "/".join((self.provider, self.zone or self.region, self.instance_type))

    @property
    def pool(self) -> str:
        """The pool's stable name: place, machine and capacity type. Two offers of one pool are two prices of the same
        capacity."""
        term = f"/{self.term_months}m" if self.term_months else ""
        machine = self.machine if self.whole is None else self._whole_machine
        place = self.zone or self.region
        return "/".join((self.provider, place, self.instance_type, machine, str(self.capacity_type))) + term

    @property
    def id(self) -> str:
        """Unique among the current offers of all sources: the pool and the source that prices it."""
        return f"{self.pool}@{self.source}"

    @property
    def machine(self) -> str:
        """``H100:8``, or ``cpu`` for a machine without accelerators."""
        return f"{self.accelerator}:{self.count}" if self.accelerator else "cpu"

    @property
    def _whole_machine(self) -> str:
        """As `machine`, but of the whole machine if this is a part of one: all its parts are one pool."""
        gpus = self.whole.gpus if self.whole is not None else ()
        return next((f"{name}:{count}" for name, count in gpus), "cpu")

    @property
    def location(self) -> str:
        """``provider/region``, as data locations and egress tables write it."""
        return f"{self.provider}/{self.region}"

    @property
    def is_imported(self) -> bool:
        """Whether its price is from an imported table, not from a poll."""
        return self.source.startswith("csv:")

    @property
    def price_per_gpu(self) -> Money | None:
        """USD per hour and accelerator; None without a price or without accelerators."""
        if self.price is None or not self.count:
            return None
        return self.price.share(1, self.count)

    @property
    def price_per_unit(self) -> Money | None:
        """USD per hour and accelerator, or per vCPU of a machine without accelerators; None if unknown."""
        if self.accelerator is not None or self.price is None or not self.cpus:
            return self.price_per_gpu
        return Money(int(self.price.micros / self.cpus))

    def may_be_free(self) -> bool:
        """Whether a price of zero makes sense here."""
        return self.capacity_type is CapacityType.OWNED or (
            self.capacity_type is CapacityType.RESERVED and self.money is not MoneyKind.CASH
        )

    def has_valid_price(self) -> bool:
        """Known, and positive unless zero makes sense."""
        if self.price is None:
            return False
        return self.price.micros > 0 or (self.price.micros == 0 and self.may_be_free())


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """A row of a provider's answer that could not become an offer: a countable reason, and a detail."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class OfferQuery:
    """A filter of offers. Empty tuples and None mean: no restriction. Patterns are shell-style (``us-*``)."""

    accelerators: tuple[str, ...] = ()
    count: int | None = None
    capacity_types: tuple[CapacityType, ...] = ()
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    max_price: Money | None = None


def part_price(price: Money, name: str | None) -> Money:
    """The price of an accelerator at a price of its card (USD per hour), by its share of the memory. Truncated to the
    micro-dollar: the parts of a card never cost more than the card, and what they leave is its owner's."""
    share = card_share(name)[1]
    return Money(price.micros * share.numerator // share.denominator)
