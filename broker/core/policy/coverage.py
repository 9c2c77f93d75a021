"""The facts of an action that a rule read, which an approval covers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from broker.core.job.placements import Placement
from broker.core.market.offers import Offer
from broker.core.policy.facts import Aspect, Fact, Value
from broker.core.policy.policy import Action, ActionKind


def seen(action: Action, *aspects: Aspect) -> tuple[Fact, ...]:
    """The facts of an action with these aspects. Without a placement, the facts of a placement are unknown."""
    return tuple(Fact(aspect=aspect, value=_value(action, aspect)) for aspect in aspects)


def moment(at: datetime) -> int:
    """A time as a fact stores it: microseconds since 1970 UTC."""
    return round(at.timestamp() * 1_000_000)


def _value(action: Action, aspect: Aspect) -> Value:
    match aspect:
        case Aspect.DATA_LOCATION:
            return action.job.data.location
        case Aspect.SENSITIVE_DATA:
            return action.job.data.sensitive
        case Aspect.ATTEMPTS:
            # The start itself counts, so that its approval covers it while it runs.
            return action.attempts + (action.kind is not ActionKind.CONTINUE and not action.in_place)
        case _ if action.placement is None:
            return None
        case _ if aspect in _OF_OFFER:
            return _OF_OFFER[aspect](action.placement.offer)
        case _:
            return _OF_PLACEMENT[aspect](action.placement)


def _per_gpu(offer: Offer) -> float | None:
    """Not rounded to whole micro-dollars, as `Offer.price_per_gpu` is."""
    return None if offer.price is None or not offer.count else offer.price.micros / offer.count


_OF_OFFER: Mapping[Aspect, Callable[[Offer], Value]] = {
    Aspect.PROVIDER: lambda offer: offer.provider,
    Aspect.REGION: lambda offer: offer.region,
    Aspect.ZONE: lambda offer: offer.zone,
    Aspect.INSTANCE_TYPE: lambda offer: offer.instance_type,
    Aspect.ACCELERATOR: lambda offer: offer.accelerator,
    Aspect.CAPACITY_TYPE: lambda offer: offer.capacity_type.value,
    Aspect.MONEY: lambda offer: offer.money.value,
    Aspect.PRICE_SOURCE: lambda offer: offer.source,
    Aspect.REFERENCE_PRICE: lambda offer: offer.reference,
    Aspect.INTERCONNECT: lambda offer: offer.interconnect.value if offer.interconnect else None,
    Aspect.GPUS_PER_MACHINE: lambda offer: offer.count,
    Aspect.PRICE: lambda offer: None if offer.price is None else offer.price.micros,
    Aspect.PRICE_PER_GPU: _per_gpu,
    Aspect.INTERRUPTIONS: lambda offer: offer.interruption_rate,
    Aspect.PRICE_DATE: lambda offer: moment(offer.as_of),
}
_OF_PLACEMENT: Mapping[Aspect, Callable[[Placement], Value]] = {
    Aspect.NODES: lambda placement: placement.nodes,
    Aspect.GPUS: lambda placement: placement.gpus,
    Aspect.RATE: lambda placement: placement.rate.micros,
    Aspect.EXPECTED_COST: lambda placement: placement.expected_cost.micros,
    Aspect.EXPECTED_HOURS: lambda placement: (
        None if placement.duration is None else placement.duration / timedelta(hours=1)
    ),
}
