"""Bought capacity as offers: at no further price within its period, with the value of an hour for showback. Pure.

Machines in a capacity block are ended by EC2 half an hour before the block ends. Work leaves five minutes before that,
so that it can save a checkpoint and go on elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.policy.policy import LiveAttempt
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.purchases.quotes import OrderState, PurchaseProduct
from broker.core.values.money import Money

LEAVES = timedelta(minutes=35)
"""How long before the end of bought capacity work leaves it."""

_SOURCE = "purchases"
# Machines of this type use an open reservation without naming it; the others must be named, which no engine does yet.
_OPEN = (PurchaseProduct.CAPACITY_RESERVATION,)
_ENGINE = "skypilot"


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


def leave_at(offer: Offer, purchases: Iterable[Purchase], now: datetime) -> datetime | None:
    """When work leaves the bought capacity that the offer is of: `LEAVES` before the earliest end of those in force,
    extensions included. None for an offer of anything else."""
    found = [one for one in purchases if one.state is PurchaseState.HELD and is_of(offer, one)]
    ends = {one.order.id: one.quote.ends for one in found if one.order is not None and not one.quote.extends}
    for one in found:
        if one.quote.extends in ends:
            ends[one.quote.extends] = max(ends[one.quote.extends], one.quote.ends)
    ahead = [end for end in ends.values() if end > now]
    return min(ahead) - LEAVES if ahead else None


def with_bought(
    offers: Sequence[Offer], purchases: Sequence[Purchase], live: Sequence[LiveAttempt], now: datetime
) -> list[Offer]:
    """The offers, those of bought machines with the value of their hours and unavailable from `leave_at` on; and bought
    machines that no provider has listed. ``live``: attempts that occupy capacity."""
    bought = in_use(purchases, now)
    if not bought:
        return list(offers)
    listed = [_valued(offer, bought, purchases, now) for offer in offers]
    used = Counter[str]()
    for attempt in live:
        used[attempt.pool] += attempt.nodes
    seen = {offer.pool for offer in listed if any(is_of(offer, one) for one in bought)}
    own: dict[str, Offer] = {}
    for one in bought:
        made = _offer(one, now)
        if made.pool not in seen and not one.quote.extends:
            before = own[made.pool].slots or 0 if made.pool in own else 0
            own[made.pool] = replace(made, slots=before + one.quote.machines)
    free = [replace(one, slots=max((one.slots or 0) - used[pool], 0)) for pool, one in own.items()]
    return [*listed, *(_valued(one, bought, purchases, now) for one in free)]


def _offer(purchase: Purchase, now: datetime) -> Offer:
    quote = purchase.quote
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
        availability=Availability.AVAILABLE,
        slots=quote.machines,
        engine=_ENGINE if quote.product in _OPEN else None,
        money=MoneyKind.AMORTISED,
    )


def _valued(offer: Offer, bought: Sequence[Purchase], purchases: Sequence[Purchase], now: datetime) -> Offer:
    mine = [one for one in bought if is_of(offer, one)]
    if not mine:
        return offer
    offer = replace(offer, amortised=max(one.quote.per_machine_hour for one in mine))
    leaves = leave_at(offer, purchases, now)
    if leaves is None or now < leaves:
        return offer
    because = f"the capacity that was bought here is left at {leaves:%Y-%m-%d %H:%M} UTC, before it ends"
    return replace(offer, availability=Availability.UNAVAILABLE, unavailable_because=because)
