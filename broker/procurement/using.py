"""Bought capacity as offers: at no further price within its period, with the value of an hour for showback. Pure.

Machines in a capacity block are ended by EC2 half an hour before the block ends. Work leaves five minutes before that,
so that it can save a checkpoint and go on elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.purchases.quotes import OrderState
from broker.core.values.money import Money

LEAVES = timedelta(minutes=35)
"""How long before the end of bought capacity work leaves it."""

_SOURCE = "purchases"
# The engine that launches into capacity which is named to it, by provider.
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
    paid = offer.money is MoneyKind.AMORTISED or bool(offer.lent_from)
    held = offer.capacity_type is CapacityType.RESERVED and paid
    return held and machine and place


def leave_at(offer: Offer, purchases: Sequence[Purchase], now: datetime) -> datetime | None:
    """When work leaves the bought capacity that the offer is of: `LEAVES` before the earliest end of those in force,
    extensions included. At once (``now``) if none is in force any more of those that were when the offer was made: its
    machine may run on, at the price on demand. None for an offer of anything else. ``purchases``: all, with those that
    are closed."""
    held = [one for one in purchases if one.state is PurchaseState.HELD and is_of(offer, one)]
    found = [one for one in held if one.quote.starts <= now or one.quote.extends]
    ends = {one.order.id: one.quote.ends for one in found if one.order is not None and not one.quote.extends}
    for one in found:
        if block := one.quote.extends:  # which is no longer held itself once its own period is over
            ends[block] = max(ends.get(block, one.quote.ends), one.quote.ends)
    ahead = [end for end in ends.values() if end > now]
    if ahead:
        return min(ahead) - LEAVES
    return now if _was_of_closed(offer, purchases) else None


def _was_of_closed(offer: Offer, purchases: Iterable[Purchase]) -> bool:
    over = (PurchaseState.ENDED, PurchaseState.UNDONE, PurchaseState.SELLING, PurchaseState.SOLD)
    closed = (one.quote for one in purchases if one.state in over and is_of(offer, one))
    return any(quote.product.holds_machines and quote.starts <= offer.as_of < quote.ends for quote in closed)


def is_extended(purchase: Purchase, purchases: Iterable[Purchase]) -> bool:
    """Whether the machines stay beyond the purchase's period, by an extension that is held."""
    order = purchase.order.id if purchase.order else ""
    block = purchase.quote.extends or order
    return any(
        one.state is PurchaseState.HELD and one.quote.extends == block and one.quote.ends > purchase.quote.ends
        for one in purchases
        if block
    )


def orders_of(offer: Offer, purchases: Iterable[Purchase], now: datetime) -> tuple[str, ...]:
    """The provider's ids of the orders now in force whose machines the offer is of; none for an offer of anything else.
    An extension has the id of what it extends."""
    mine = [one for one in in_use(purchases, now) if is_of(offer, one) and one.order is not None]
    return tuple(dict.fromkeys(one.quote.extends or one.order.id for one in mine if one.order is not None))


def coming(
    offers: Sequence[Offer], purchases: Iterable[Purchase], now: datetime, within: timedelta
) -> list[tuple[Offer, datetime]]:
    """Bought machines whose period begins ``within`` that time, as offers, with their beginning (UTC), earliest first.
    Without those of a pool that is there already: its free machines count first."""
    there = {offer.pool for offer in offers}
    ahead = [
        one
        for one in purchases
        if one.state is PurchaseState.HELD
        and one.quote.product.holds_machines
        and not one.quote.extends
        and now < one.quote.starts <= now + within
    ]
    found: dict[str, tuple[Offer, datetime]] = {}
    for one in sorted(ahead, key=lambda one: one.quote.starts):
        offer = replace(_offer(one, now, offers), amortised=one.quote.per_machine_hour)
        if offer.pool not in there:
            found.setdefault(offer.pool, (offer, one.quote.starts))
    return list(found.values())


def with_bought(offers: Sequence[Offer], purchases: Sequence[Purchase], now: datetime) -> list[Offer]:
    """The offers, those of bought machines with the value of their hours and unavailable from `leave_at` on; and bought
    machines that no provider has listed, with all of them as free: what jobs occupy is subtracted where plans are
    made."""
    bought = in_use(purchases, now)
    if not bought:
        return list(offers)
    listed = [_valued(offer, bought, purchases, now) for offer in offers]
    seen = {offer.pool for offer in listed if any(is_of(offer, one) for one in bought)}
    own: dict[str, Offer] = {}
    for one in bought:
        made = _offer(one, now, offers)
        if made.pool not in seen and not one.quote.extends:
            before = own[made.pool].slots or 0 if made.pool in own else 0
            own[made.pool] = replace(made, slots=before + one.quote.machines)
    return [*listed, *(_valued(one, bought, purchases, now) for one in own.values())]


def _offer(purchase: Purchase, now: datetime, others: Sequence[Offer]) -> Offer:
    """``others``: where an offer of the same machine type says what a quote does not: CPUs, memory, connection."""
    quote = purchase.quote
    type = (quote.provider, quote.instance_type)
    like = next((one for one in others if (one.provider, one.instance_type) == type and one.cpus is not None), None)
    return Offer(
        provider=quote.provider,
        region=quote.region,
        zone=quote.zone,
        instance_type=quote.instance_type,
        accelerator=quote.accelerator,
        count=quote.count,
        capacity_type=CapacityType.RESERVED,
        price=Money.ZERO,
        as_of=now,
        source=_SOURCE,
        cpus=like.cpus if like else None,
        memory_gib=like.memory_gib if like else None,
        interconnect=like.interconnect if like else None,
        availability=Availability.AVAILABLE,
        slots=quote.machines,
        engine=_ENGINES.get(quote.provider),
        money=MoneyKind.AMORTISED,
    )


def _valued(offer: Offer, bought: Sequence[Purchase], purchases: Sequence[Purchase], now: datetime) -> Offer:
    mine = [one for one in bought if is_of(offer, one)]
    if not mine:
        return offer
    # What the provider lists of it has no engine where a machine must name its reservation: here its name is known.
    engine = offer.engine or _ENGINES.get(offer.provider)
    offer = replace(offer, amortised=max(one.quote.per_machine_hour for one in mine), engine=engine)
    leaves = leave_at(offer, purchases, now)
    if leaves is None or now < leaves:
        return offer
    because = f"the capacity that was bought here is left at {leaves:%Y-%m-%d %H:%M} UTC, before it ends"
    return replace(offer, availability=Availability.UNAVAILABLE, unavailable_because=because)
