"""What an approval covers: the facts of an action that a rule read, also in words, such as ``gcp/eu-1, at most $12.25
per GPU-hour, 8 GPUs, $900.00 in total``. Pure.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

from broker.core.job.placements import Placement
from broker.core.market.offers import Offer
from broker.core.policy.approvals import RequestedApproval
from broker.core.policy.facts import Aspect, Fact, Value
from broker.core.policy.policy import Action, ActionKind
from broker.core.values.money import Money
from broker.core.values.units import print_duration


def read_facts(action: Action, *aspects: Aspect) -> tuple[Fact, ...]:
    """The facts of an action with these aspects. Without a placement, the facts of a placement are unknown."""
    return tuple(Fact(aspect=aspect, value=_value(action, aspect)) for aspect in aspects)


def to_microseconds(at: datetime) -> int:
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
        case _ if aspect in _OFFER_ASPECTS:
            return _OFFER_ASPECTS[aspect](action.placement.offer)
        case _:
            return _PLACEMENT_ASPECTS[aspect](action.placement)


def _per_gpu(offer: Offer) -> float | None:
    """Not rounded to whole micro-dollars, as `Offer.price_per_gpu` is."""
    return None if offer.price is None or not offer.count else offer.price.micros / offer.count


_OFFER_ASPECTS: Mapping[Aspect, Callable[[Offer], Value]] = {
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
    Aspect.PRICE_DATE: lambda offer: to_microseconds(offer.as_of),
}
_PLACEMENT_ASPECTS: Mapping[Aspect, Callable[[Placement], Value]] = {
    Aspect.NODES: lambda placement: placement.nodes,
    Aspect.GPUS: lambda placement: placement.gpus,
    Aspect.RATE: lambda placement: placement.rate.micros,
    Aspect.EXPECTED_COST: lambda placement: placement.expected_cost.micros,
    Aspect.EXPECTED_HOURS: lambda placement: (
        None if placement.duration is None else placement.duration / timedelta(hours=1)
    ),
}


def coverage_text(request: RequestedApproval) -> str:
    """The coverage once all approvers agree."""
    facts = {(f.aspect, f.of): f for question in request.questions for f in question.facts}
    limits = ["1 GPU" if request.gpus == 1 else f"{request.gpus} GPUs"] if request.gpus else []
    limits.append(f"{request.total} in total")
    if request.lasts is not None:
        limits.append(print_duration(timedelta(seconds=round(request.lasts.total_seconds()))))
    return ", ".join([*facts_in_words(facts.values()), *limits])


def facts_in_words(facts: Iterable[Fact]) -> list[str]:
    """Each fact as a few words; provider and region are one."""
    facts_by_key = {(fact.aspect, fact.of): fact for fact in facts}
    region = facts_by_key.pop((Aspect.REGION, ""), None)
    words = []
    for fact in facts_by_key.values():
        if fact.aspect is Aspect.PROVIDER and region is not None:
            words.append(f"{fact.value}/{region.value}")
            region = None
        else:
            words.append(_fact_in_words(fact))
    return [*words, *([_fact_in_words(region)] if region is not None else [])]


def _fact_in_words(fact: Fact) -> str:
    if fact.value is None:
        return f"{_UNKNOWN.get(fact.aspect, fact.aspect.value.replace('_', ' '))} not known"
    if fact.aspect in (Aspect.SENSITIVE_DATA, Aspect.REFERENCE_PRICE):
        return _YES_OR_NO[fact.aspect, bool(fact.value)]
    words = _WORDS.get(fact.aspect)
    text = words(fact.value) if words else str(fact.value).replace("_", "-")
    return f"{text} in the budget's period from {fact.of[:10]}" if fact.aspect is Aspect.BUDGET else text


_UNKNOWN = {Aspect.DATA_LOCATION: "location of the data"}
_YES_OR_NO = {
    (Aspect.SENSITIVE_DATA, True): "sensitive data",
    (Aspect.SENSITIVE_DATA, False): "data that is not sensitive",
    (Aspect.REFERENCE_PRICE, True): "a reference price",
    (Aspect.REFERENCE_PRICE, False): "a live price",
}


def _usd(value: Value) -> str:
    return str(Money(round(float(value or 0))))


def _time(value: Value) -> str:
    return f"{datetime.fromtimestamp(float(value or 0) / 1_000_000, UTC):%Y-%m-%d %H:%M} UTC"


def _print_number(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_WORDS: Mapping[Aspect, Callable[[Value], str]] = {
    Aspect.MONEY: lambda value: f"{value} money",
    Aspect.PRICE_SOURCE: lambda value: f"prices of {value}",
    Aspect.INTERCONNECT: lambda value: f"joined by {value}",
    Aspect.DATA_LOCATION: lambda value: f"data in {value}",
    Aspect.FREEZE: lambda value: f"the freeze until {_time(value)}",
    Aspect.GPUS_PER_MACHINE: lambda value: f"at most {value} GPUs a machine",
    Aspect.NODES: lambda value: f"at most {value} machines",
    Aspect.GPUS: lambda value: f"at most {value} GPUs",
    Aspect.PRICE: lambda value: f"at most {_usd(value)} per machine-hour",
    Aspect.PRICE_PER_GPU: lambda value: f"at most {_usd(value)} per GPU-hour",
    Aspect.RATE: lambda value: f"at most {_usd(value)} per hour",
    Aspect.EXPECTED_COST: lambda value: f"at most {_usd(value)} expected",
    Aspect.EXPECTED_HOURS: lambda value: f"at most {_print_number(value)} h expected",
    Aspect.INTERRUPTIONS: lambda value: f"at most {_print_number(value)} interruptions per hour expected",
    Aspect.ATTEMPTS: lambda value: f"at most {value} attempts",
    Aspect.EMISSIONS: lambda value: f"at most {_print_number(value)} kg CO2e",
    Aspect.GPUS_AT_ONCE: lambda value: f"at most {value} GPUs at once with those of others",
    Aspect.JOBS_AT_ONCE: lambda value: f"at most {value} jobs at once with those of others",
    Aspect.BUDGET: lambda value: f"at most {_usd(value)} spent and held",
    Aspect.ENDS_BY: lambda value: f"until {_time(value)}",
    Aspect.PRICE_DATE: lambda value: f"a price of {_time(value)} or later",
    Aspect.SPOT_SHARE: lambda value: f"at least {_print_number(value)} percent spot",
    Aspect.HELD_USE: lambda value: f"at least {_print_number(value)} percent of what is held at work",
}
