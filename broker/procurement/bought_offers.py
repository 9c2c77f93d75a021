"""Bought capacity as offers: free of charge within its period, with an hourly value (USD) for showback. Pure.

EC2 ends machines in a capacity block half an hour before the end of the block. Jobs leave five minutes before that, so
that they can save a checkpoint and continue elsewhere.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.purchases.purchases import Purchase, PurchaseState
from broker.core.purchases.quotes import CapacityQuote, OrderState
from broker.core.values.money import Money

LEAVE_BEFORE = timedelta(minutes=35)
"""The time before the end of bought capacity at which jobs leave it."""

_SOURCE = "purchases"
# By provider, the engine that can launch into a named reservation.
_ENGINES = {"aws": "skypilot"}


def available_purchases(purchases: Iterable[Purchase], now: datetime) -> list[Purchase]:
    return [
        purchase
        for purchase in purchases
        if purchase.state is PurchaseState.HELD
        and purchase.quote.product.holds_machines
        and purchase.quote.starts <= now < purchase.quote.ends
        and (not purchase.quote.recurring or purchase.order is None or purchase.order.state is OrderState.HELD)
    ]


def matches_purchase(offer: Offer, purchase: Purchase) -> bool:
    quote = purchase.quote
    place = offer.zone == quote.zone if quote.zone and offer.zone else offer.region == quote.region
    machine = (offer.provider, offer.instance_type) == (quote.provider, quote.instance_type)
    held = offer.capacity_type is CapacityType.RESERVED and offer.money is MoneyKind.AMORTISED
    return held and machine and place


def leave_at(offer: Offer, purchases: Sequence[Purchase], now: datetime) -> datetime | None:
    """When jobs leave the bought capacity of the offer (UTC): `LEAVE_BEFORE` before the earliest end of the purchases
    in force; ``now`` if none of them is in force any more, since its machines may continue at the
    on-demand price. None if the offer is not bought capacity. ``purchases``: all, including closed ones."""
    quotes = [
        purchase.quote
        for purchase in purchases
        if purchase.state is PurchaseState.HELD and matches_purchase(offer, purchase)
    ]
    ends = [quote.ends for quote in quotes if quote.starts <= now < quote.ends]
    if ends:
        return min(ends) - LEAVE_BEFORE
    return now if _matches_closed(offer, purchases) else None


def _matches_closed(offer: Offer, purchases: Iterable[Purchase]) -> bool:
    closed_states = (PurchaseState.ENDED, PurchaseState.UNDONE)
    closed = (
        purchase.quote
        for purchase in purchases
        if purchase.state in closed_states and matches_purchase(offer, purchase)
    )
    return any(quote.product.holds_machines and quote.starts <= offer.as_of < quote.ends for quote in closed)


def orders_of(offer: Offer, purchases: Iterable[Purchase], now: datetime) -> tuple[str, ...]:
    """The provider's ids of the orders in force behind the offer; none if it is not bought capacity."""
    orders = [
        purchase.order
        for purchase in available_purchases(purchases, now)
        if matches_purchase(offer, purchase) and purchase.order is not None
    ]
    return tuple(dict.fromkeys(order.id for order in orders))


def upcoming_offers(
    offers: Sequence[Offer], purchases: Iterable[Purchase], now: datetime, within: timedelta
) -> list[tuple[Offer, datetime]]:
    """Bought machines whose period begins ``within`` that time, as offers, with their start (UTC), earliest first.
    Omits pools that already have machines: their free machines count first."""
    pools = {offer.pool for offer in offers}
    upcoming = [
        purchase
        for purchase in purchases
        if purchase.state is PurchaseState.HELD
        and purchase.quote.product.holds_machines
        and now < purchase.quote.starts <= now + within
    ]
    by_pool: dict[str, tuple[Offer, datetime]] = {}
    for purchase in sorted(upcoming, key=lambda purchase: purchase.quote.starts):
        offer = replace(_offer(purchase, now, offers), amortised=purchase.quote.per_machine_hour)
        if offer.pool not in pools:
            by_pool.setdefault(offer.pool, (offer, purchase.quote.starts))
    return list(by_pool.values())


def add_bought_offers(offers: Sequence[Offer], purchases: Sequence[Purchase], now: datetime) -> list[Offer]:
    """The offers, where those of bought machines have their hourly value and are unavailable from `leave_at` on, and
    offers of bought machines that no provider lists. All machines count as free: the planner subtracts those in use."""
    bought = available_purchases(purchases, now)
    if not bought:
        return list(offers)
    priced_offers = [_with_value(offer, bought, purchases, now) for offer in offers]
    seen = {offer.pool for offer in priced_offers if any(matches_purchase(offer, item) for item in bought)}
    unlisted: dict[str, Offer] = {}
    for item in bought:
        bought_offer = _offer(item, now, offers)
        if bought_offer.pool not in seen:
            slots = unlisted[bought_offer.pool].slots or 0 if bought_offer.pool in unlisted else 0
            unlisted[bought_offer.pool] = replace(bought_offer, slots=slots + item.quote.machines)
    return [*priced_offers, *(_with_value(item, bought, purchases, now) for item in unlisted.values())]


def _offer(purchase: Purchase, now: datetime, similar_offers: Sequence[Offer]) -> Offer:
    """``similar_offers``: offers of the same machine type, for fields that a quote does not have: CPUs, memory,
    interconnect."""
    quote = purchase.quote
    machine = (quote.provider, quote.instance_type)
    similar = next(
        (
            candidate
            for candidate in similar_offers
            if (candidate.provider, candidate.instance_type) == machine and candidate.cpus is not None
        ),
        None,
    )
    return replace(
        quoted_offer(quote, Money.ZERO, now, _SOURCE),
        cpus=similar.cpus if similar else None,
        memory_gib=similar.memory_gib if similar else None,
        interconnect=similar.interconnect if similar else None,
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


def _with_value(offer: Offer, bought: Sequence[Purchase], purchases: Sequence[Purchase], now: datetime) -> Offer:
    own_purchases = [purchase for purchase in bought if matches_purchase(offer, purchase)]
    if not own_purchases:
        return offer
    # Listed reservations have no engine if a machine must name its reservation; here the name is known.
    engine = offer.engine or _ENGINES.get(offer.provider)
    offer = replace(offer, amortised=max(purchase.quote.per_machine_hour for purchase in own_purchases), engine=engine)
    leaves = leave_at(offer, purchases, now)
    if leaves is None or now < leaves:
        return offer
    reason = f"jobs leave the capacity bought here at {leaves:%Y-%m-%d %H:%M} UTC, before it ends"
    return replace(offer, availability=Availability.UNAVAILABLE, unavailable_because=reason)
