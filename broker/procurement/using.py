"""Bought capacity as offers: free of charge within its period, with an hourly value (USD) for showback. Pure.

EC2 ends machines in a capacity block half an hour before the end of the block. Jobs leave five minutes before that, so
that they can save a checkpoint and continue elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.purchases.quotes import CapacityQuote, OrderState
from broker.core.values.money import Money

LEAVES = timedelta(minutes=35)
"""The time before the end of bought capacity at which jobs leave it."""

_SOURCE = "purchases"
# By provider, the engine that can launch into a named reservation.
_ENGINES = {"aws": "skypilot"}


def in_use(purchases: Iterable[Purchase], now: datetime) -> list[Purchase]:
    """The purchases of machines that are available now."""
    return [
        one
        for one in purchases
        if one.state is PurchaseState.HELD
        and one.quote.product.holds_machines
        and one.quote.starts <= now < one.quote.ends
        and (not one.quote.recurring or one.order is None or one.order.state is OrderState.HELD)
    ]


def is_of(offer: Offer, purchase: Purchase) -> bool:
    """Whether the offer is of the purchase's machines."""
    quote = purchase.quote
    place = offer.zone == quote.zone if quote.zone and offer.zone else offer.region == quote.region
    machine = (offer.provider, offer.instance_type) == (quote.provider, quote.instance_type)
    held = offer.capacity_type is CapacityType.RESERVED and offer.money is MoneyKind.AMORTISED
    return held and machine and place


def leave_at(offer: Offer, purchases: Sequence[Purchase], now: datetime) -> datetime | None:
    """When jobs leave the bought capacity of the offer (UTC): `LEAVES` before the earliest end of the purchases in
    force; ``now`` if none of them is in force any more, since its machines may continue at the
    on-demand price. None if the offer is not bought capacity. ``purchases``: all, including closed ones."""
    held = [one.quote for one in purchases if one.state is PurchaseState.HELD and is_of(offer, one)]
    ahead = [quote.ends for quote in held if quote.starts <= now < quote.ends]
    if ahead:
        return min(ahead) - LEAVES
    return now if _was_of_closed(offer, purchases) else None


def _was_of_closed(offer: Offer, purchases: Iterable[Purchase]) -> bool:
    over = (PurchaseState.ENDED, PurchaseState.UNDONE)
    closed = (one.quote for one in purchases if one.state in over and is_of(offer, one))
    return any(quote.product.holds_machines and quote.starts <= offer.as_of < quote.ends for quote in closed)


def orders_of(offer: Offer, purchases: Iterable[Purchase], now: datetime) -> tuple[str, ...]:
    """The provider's ids of the orders in force behind the offer; none if it is not bought capacity."""
    mine = [one.order for one in in_use(purchases, now) if is_of(offer, one) and one.order is not None]
    return tuple(dict.fromkeys(order.id for order in mine))


def coming(
    offers: Sequence[Offer], purchases: Iterable[Purchase], now: datetime, within: timedelta
) -> list[tuple[Offer, datetime]]:
    """Bought machines whose period begins ``within`` that time, as offers, with their start (UTC), earliest first.
    Omits pools that already have machines: their free machines count first."""
    there = {offer.pool for offer in offers}
    ahead = [
        one
        for one in purchases
        if one.state is PurchaseState.HELD
        and one.quote.product.holds_machines
        and now < one.quote.starts <= now + within
    ]
    found: dict[str, tuple[Offer, datetime]] = {}
    for one in sorted(ahead, key=lambda one: one.quote.starts):
        offer = replace(_offer(one, now, offers), amortised=one.quote.per_machine_hour)
        if offer.pool not in there:
            found.setdefault(offer.pool, (offer, one.quote.starts))
    return list(found.values())


def with_bought(offers: Sequence[Offer], purchases: Sequence[Purchase], now: datetime) -> list[Offer]:
    """The offers, where those of bought machines have their hourly value and are unavailable from `leave_at` on, and
    offers of bought machines that no provider lists. All machines count as free: the planner subtracts those in use."""
    bought = in_use(purchases, now)
    if not bought:
        return list(offers)
    listed = [_valued(offer, bought, purchases, now) for offer in offers]
    seen = {offer.pool for offer in listed if any(is_of(offer, one) for one in bought)}
    own: dict[str, Offer] = {}
    for one in bought:
        made = _offer(one, now, offers)
        if made.pool not in seen:
            before = own[made.pool].slots or 0 if made.pool in own else 0
            own[made.pool] = replace(made, slots=before + one.quote.machines)
    return [*listed, *(_valued(one, bought, purchases, now) for one in own.values())]


def _offer(purchase: Purchase, now: datetime, others: Sequence[Offer]) -> Offer:
    """``others``: offers of the same machine type, for fields that a quote does not have: CPUs, memory,
    interconnect."""
    quote = purchase.quote
    type = (quote.provider, quote.instance_type)
    like = next((one for one in others if (one.provider, one.instance_type) == type and one.cpus is not None), None)
    return replace(
        quoted_offer(quote, Money.ZERO, now, _SOURCE),
        cpus=like.cpus if like else None,
        memory_gib=like.memory_gib if like else None,
        interconnect=like.interconnect if like else None,
        availability=Availability.AVAILABLE,
        slots=quote.machines,
        engine=_ENGINES.get(quote.provider),
        money=MoneyKind.AMORTISED,
    )


def quoted_offer(quote: CapacityQuote, price: Money, as_of: datetime, source: str) -> Offer:
    """The quoted machines as an offer. ``price``: USD per machine and hour; ``as_of``: UTC."""
    return Offer(
        quote.provider, quote.region, quote.zone, quote.instance_type, quote.accelerator, quote.count,
        CapacityType.RESERVED, price, as_of, source,
    )  # fmt: skip


def _valued(offer: Offer, bought: Sequence[Purchase], purchases: Sequence[Purchase], now: datetime) -> Offer:
    mine = [one for one in bought if is_of(offer, one)]
    if not mine:
        return offer
    # Listed reservations have no engine if a machine must name its reservation; here the name is known.
    engine = offer.engine or _ENGINES.get(offer.provider)
    offer = replace(offer, amortised=max(one.quote.per_machine_hour for one in mine), engine=engine)
    leaves = leave_at(offer, purchases, now)
    if leaves is None or now < leaves:
        return offer
    because = f"jobs leave the capacity bought here at {leaves:%Y-%m-%d %H:%M} UTC, before it ends"
    return replace(offer, availability=Availability.UNAVAILABLE, unavailable_because=because)
