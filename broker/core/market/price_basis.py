"""The price of a machine on the market: which known offer prices it, and which cheaper one does not, for what reason.

Lists, advice, capacity plans and reviews compare offers here and nowhere else. Live and list prices compete alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from functools import cache

from broker.core.market.accelerators import lookup
from broker.core.market.offers import Availability, CapacityType, Interconnect, MoneyKind, Offer
from broker.core.values.figures import age
from broker.core.values.money import MICROS_PER_USD, Money

LIST_AGE, SPOT_LIST_AGE = timedelta(days=180), timedelta(days=60)
"""The age from which a list price is old. List prices change a few times a year, spot prices all the time."""
_PRIVATE_HOSTS = frozenset({"lium", "vast"})
_FULL = (Availability.UNAVAILABLE, Availability.NO_QUOTA)


class Standing(IntEnum):
    """How an offer competes; the first is the best. ``LISTED``: no engine starts jobs there; ``STALE``: older than its
    source allows; ``OLD``: a list price older than `LIST_AGE`; ``SUSPICIOUS``: not believed."""

    LAUNCHABLE = 0
    SOLD_OUT = 1
    LISTED = 2
    STALE = 3
    OLD = 4
    SUSPICIOUS = 5


_REASONS = {
    Standing.SOLD_OUT: "sold out",
    Standing.LISTED: "no engine starts jobs there",
    Standing.STALE: "stale",
    Standing.OLD: "old list price",
    Standing.SUSPICIOUS: "suspicious",
}


def is_stale(offer: Offer, now: datetime) -> bool:
    """Whether its price is too old to rely on: a live one by its provider's maximum age, a list price by `is_old`."""
    if offer.reference:
        return is_old(offer, now)
    return offer.max_age is not None and now - offer.as_of > offer.max_age


def is_old(offer: Offer, now: datetime) -> bool:
    """Whether it is a list price that is too old to be shown by default, or to recommend a purchase."""
    limit = SPOT_LIST_AGE if offer.capacity_type is CapacityType.SPOT else LIST_AGE
    return offer.reference and now - offer.as_of > limit


def standing(offer: Offer, now: datetime) -> Standing:
    """How the offer competes at ``now`` (UTC)."""
    if offer.doubt is not None:
        return Standing.SUSPICIOUS
    if is_stale(offer, now):
        return Standing.OLD if offer.reference else Standing.STALE
    if offer.engine is None:
        return Standing.LISTED
    return Standing.SOLD_OUT if offer.availability in _FULL else Standing.LAUNCHABLE


def is_current(offer: Offer, now: datetime) -> bool:
    """Whether its price is neither stale nor an old list price."""
    return standing(offer, now) not in (Standing.STALE, Standing.OLD)


@dataclass(frozen=True, slots=True)
class MachineClass:
    """What makes machines with one accelerator alike. ``linked``: a machine with fast links between its cards, or a
    part of one; ``private``: in the hands of private hosts on a marketplace, not in a provider's data center."""

    linked: bool
    private: bool

    @classmethod
    def of(cls, offer: Offer) -> MachineClass:
        private = offer.provider in _PRIVATE_HOSTS or offer.region == "community"
        link = None if offer.accelerator is None else _board_link(offer.accelerator)
        if offer.interconnect is not None and link in (None, Interconnect.NVLINK):
            return cls(offer.interconnect is Interconnect.NVLINK, private)
        return cls(link is not None and "pcie" not in offer.instance_type.lower(), private)


@cache
def _board_link(accelerator: str) -> str | None:
    """The link of a card that is a part of a machine with fast links, whatever the number that is rented. Providers say
    of NVLink alone whether a machine has it: without it the card is sold in PCIe form under the same name."""
    card = lookup(accelerator)
    return None if card.form_factor == "pcie" else card.link


def machine_order(offer: Offer) -> tuple[str, ...]:
    """The order of offers with one price."""
    return offer.provider, offer.zone or offer.region, offer.instance_type, offer.capacity_type, offer.source


def is_obtainable(offer: Offer) -> bool:
    """Whether its price counts: neither suspicious nor of capacity that is sold out."""
    return offer.doubt is None and offer.availability not in _FULL


def is_for_rent(offer: Offer) -> bool:
    """Whether accelerators have a price in cash."""
    return bool(offer.accelerator and offer.count and offer.price) and offer.money is MoneyKind.CASH


@dataclass(frozen=True, slots=True)
class PriceBasis:
    """The offer that prices a machine, and the cheapest one that costs less and does not count, with the reason."""

    offer: Offer
    now: datetime
    cheaper: Offer | None = None
    because: str = ""

    @property
    def standing(self) -> Standing:
        return standing(self.offer, self.now)

    @property
    def is_current(self) -> bool:
        return is_current(self.offer, self.now)

    @property
    def per_gpu_hour(self) -> Money:
        """USD per GPU-hour."""
        return self.offer.price_per_gpu or Money.ZERO

    @property
    def usd(self) -> float:
        """USD per GPU-hour."""
        return usd_per_gpu_hour(self.offer)

    @property
    def origin(self) -> str:
        """Place, capacity type, source and age: ``aws/us-east-1, on-demand, pricebook: list price of 2026-09-20``."""
        offer = self.offer
        since = f"list price of {offer.as_of:%Y-%m-%d}" if offer.reference else f"{age(self.now - offer.as_of)} old"
        mark = {Standing.STALE: ", stale", Standing.OLD: ", too old to rely on"}.get(self.standing, "")
        return f"{offer.location}, {offer.capacity_type.value.replace('_', '-')}, {offer.source}: {since}{mark}"

    @property
    def left_out(self) -> str:
        """The cheaper offer in words; empty without one."""
        if self.cheaper is None:
            return ""
        return f"not counted: {machine_price(self.cheaper)} ({self.because})"

    @property
    def text(self) -> str:
        """The basis in one line, with what it leaves out."""
        line = f"${self.usd:,.2f} per GPU-hour of {self.offer.machine} ({self.origin})"
        return "; ".join(filter(None, (line, self.left_out)))


def machine_price(offer: Offer) -> str:
    """``vast/global H100:1 at $2.40 per GPU-hour``"""
    return f"{offer.location} {offer.machine} at ${usd_per_gpu_hour(offer):,.2f} per GPU-hour"


def usd_per_gpu_hour(offer: Offer) -> float:
    """USD per GPU-hour; infinite without a price."""
    price = offer.price_per_gpu
    return price.micros / MICROS_PER_USD if price is not None else float("inf")


def price_basis(
    offers: Iterable[Offer],
    now: datetime,
    accelerator: str,
    kind: CapacityType = CapacityType.ON_DEMAND,
    per_machine: int | None = None,
    machine_class: MachineClass | None = None,
) -> PriceBasis | None:
    """The price of a machine with at least ``per_machine`` accelerators, which is paid in full, or of a GPU-hour in a
    machine of any size. In this order: what jobs can start on, what no engine reaches, stale live prices, old list
    prices (of the latter two, first what an engine reaches); the cheapest of each, none sold out or suspicious. Only
    current prices of spot and of terms count: they are alternatives to renting on demand, and an old one recommends
    nothing. ``machine_class``: only machines of this class; None: of any. None if no offer has a price. ``now``: UTC.
    """
    price: Callable[[Offer], float] = usd_per_gpu_hour if per_machine is None else machine_usd
    matching = [
        offer
        for offer in offers
        if offer.accelerator == accelerator
        and offer.capacity_type is kind
        and offer.count >= (per_machine or 1)
        and is_for_rent(offer)
    ]

    def is_candidate(offer: Offer) -> bool:
        is_alike = machine_class is None or MachineClass.of(offer) == machine_class
        return is_obtainable(offer) and is_alike and (kind is CapacityType.ON_DEMAND or is_current(offer, now))

    def order(offer: Offer) -> tuple[int, bool, float, int, tuple[str, ...]]:
        return standing(offer, now), offer.engine is None, price(offer), offer.count, machine_order(offer)

    best = min(filter(is_candidate, matching), key=order, default=None)
    if best is None:
        return None
    cheaper = min((offer for offer in matching if price(offer) < price(best)), key=price, default=None)
    return PriceBasis(best, now, cheaper, "" if cheaper is None else _reason(cheaper, best, now, machine_class))


def machine_usd(offer: Offer) -> float:
    """USD per hour of the machine; infinite without a price."""
    return offer.price.micros / MICROS_PER_USD if offer.price is not None else float("inf")


def _reason(offer: Offer, best: Offer, now: datetime, machine_class: MachineClass | None) -> str:
    """Why an offer does not count beside ``best``."""
    own, reasons = MachineClass.of(offer), []
    if machine_class is not None and own.private != machine_class.private:
        reasons.append("private hosts" if own.private else "not private hosts")
    if machine_class is not None and own.linked != machine_class.linked:
        reasons.append("another interconnect")
    if offer.availability in _FULL:
        reasons.append(_REASONS[Standing.SOLD_OUT])
    elif (rank := standing(offer, now)) is not Standing.LAUNCHABLE:
        is_out_of_reach = rank is standing(best, now) and offer.engine is None and best.engine is not None
        reasons.append(_REASONS[Standing.LISTED if is_out_of_reach else rank])
    return ", ".join(reasons)
