"""Converts offers to rows and back, as plain tuples without ORM: a poll may have a hundred thousand offers."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

from sqlalchemy import select

from broker.core.market.offers import Availability, Billing, CapacityType, Doubt, Interconnect, MoneyKind, Offer
from broker.core.values.money import Money
from broker.store.engine.fields import from_micros
from broker.store.schema.market import OfferRow, PoolRow

# The columns of an offer besides its date, in the order of `offer_values`.
OFFER_COLUMNS = (
    "micros",
    "availability",
    "unavailable_because",
    "score",
    "interruption_rate",
    "slots",
    "amortised",
    "cpus",
    "memory_gib",
    "interconnect",
    "engine",
    "money",
    "reference",
    "bill_minimum",
    "bill_granularity",
    "bill_free_within",
    "max_age",
)
# A known offer as read for a poll: key of the pool, source, id, as_of, changed_at, ended_at, signalled_at, doubt,
# trusted, and the columns of `OFFER_COLUMNS`. Accessed by index, since a poll has a hundred thousand offers.
KnownOffer = tuple[Any, ...]
ID_AT, ENDED_AT, DOUBT_AT, VALUES_AT = 2, 5, 7, slice(-len(OFFER_COLUMNS), None)
MONEY_AT = OFFER_COLUMNS.index("money") - len(OFFER_COLUMNS)
POOL_COLUMNS = ("provider", "region", "zone", "instance_type", "accelerator", "count", "capacity_type", "term_months")
OFFER_QUERY = select(
    *(getattr(PoolRow, name) for name in POOL_COLUMNS),
    OfferRow.source,
    OfferRow.as_of,
    *(getattr(OfferRow, name) for name in OFFER_COLUMNS),
    OfferRow.doubt,
    OfferRow.doubt_detail,
).join_from(OfferRow, PoolRow, OfferRow.pool_id == PoolRow.id)

_TICK = timedelta(microseconds=1)
_CAPACITY = {kind.value: kind for kind in CapacityType}
_AVAILABILITY = {kind.value: kind for kind in Availability}
_INTERCONNECT: dict[str | None, Interconnect | None] = {None: None, **{kind.value: kind for kind in Interconnect}}
_DOUBT: dict[str | None, Doubt | None] = {None: None, **{kind.value: kind for kind in Doubt}}
_MONEY = {kind.value: kind for kind in MoneyKind}


def offer_values(offer: Offer, micros: int | None) -> tuple[Any, ...]:
    """The values of `OFFER_COLUMNS`, with ``micros`` as the price. ``str`` of an enumeration: its value, without Python
    code."""
    return (
        micros,
        str(offer.availability),
        offer.unavailable_because,
        offer.score,
        offer.interruption_rate,
        offer.slots,
        None if offer.amortised is None else offer.amortised.micros,
        offer.cpus,
        offer.memory_gib,
        None if offer.interconnect is None else str(offer.interconnect),
        offer.engine,
        str(offer.money),
        offer.reference,
        *_billing_ticks(offer.billing),
        None if offer.max_age is None else offer.max_age // _TICK,
    )


def pool_columns(offer: Offer) -> dict[str, object]:
    """The columns of `POOL` except its id and key."""
    return {
        "provider": offer.provider,
        "region": offer.region,
        "zone": offer.zone,
        "instance_type": offer.instance_type,
        "accelerator": offer.accelerator or "",
        "count": offer.count,
        "capacity_type": offer.capacity_type.value,
        "term_months": offer.term_months,
    }


def to_offers(rows: Sequence[Any]) -> list[Offer]:
    """Offers from rows of `OFFER_QUERY`."""
    as_time: Callable[[int], Any] = lru_cache(maxsize=1024)(from_micros)
    return [
        Offer(
            provider=provider,
            region=region,
            zone=zone,
            instance_type=instance_type,
            accelerator=accelerator or None,
            count=count,
            capacity_type=_CAPACITY[capacity_type],
            price=None if micros is None else Money(micros),
            as_of=as_time(as_of),
            source=source,
            term_months=term_months,
            amortised=None if amortised is None else Money(amortised),
            cpus=cpus,
            memory_gib=memory_gib,
            interconnect=_INTERCONNECT[interconnect],
            availability=_AVAILABILITY[availability],
            unavailable_because=unavailable_because,
            score=score,
            interruption_rate=interruption_rate,
            slots=slots,
            engine=engine,
            money=_MONEY[money],
            reference=reference,
            billing=_billing(minimum, granularity, free_within),
            max_age=None if max_age is None else timedelta(microseconds=max_age),
            doubt=_DOUBT[doubt],
            doubt_detail=doubt_detail,
        )
        for (
            provider,
            region,
            zone,
            instance_type,
            accelerator,
            count,
            capacity_type,
            term_months,
            source,
            as_of,
            micros,
            availability,
            unavailable_because,
            score,
            interruption_rate,
            slots,
            amortised,
            cpus,
            memory_gib,
            interconnect,
            engine,
            money,
            reference,
            minimum,
            granularity,
            free_within,
            max_age,
            doubt,
            doubt_detail,
        ) in rows
    ]


@lru_cache(maxsize=256)
def _billing_ticks(billing: Billing) -> tuple[int, int, int]:
    return billing.minimum // _TICK, billing.granularity // _TICK, billing.free_if_interrupted_within // _TICK


@lru_cache(maxsize=256)
def _billing(minimum: int, granularity: int, free_within: int) -> Billing:
    return Billing(
        timedelta(microseconds=minimum), timedelta(microseconds=granularity), timedelta(microseconds=free_within)
    )
