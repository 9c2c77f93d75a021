"""The ranking key of placements, shared by plans, boards and the queue."""

import math
from datetime import timedelta

from broker.core.job.placements import CostTerm, Placement
from broker.core.values.figures import duration_in_hours, hours
from broker.core.values.money import Money
from broker.placement.pricing.estimate import effective_price

_LATEST = timedelta.max
RankKey = tuple[float, int, int, int, timedelta, int, str]


def rank_key(placement: Placement, place: int, machine: int, *, by_carbon: bool = False) -> RankKey:
    """The sort key, smallest first: emissions if ``by_carbon`` (kg CO2e); ``place``, the rank of the capacity type in
    the policy's order; ``machine``, the index in an ordered list of the job; weighed cost; then finish, rate, name.
    """
    return (
        _emissions(placement) if by_carbon else 0.0,
        place,
        machine,
        ranking_cost(placement).micros,
        _LATEST if placement.duration is None else placement.duration,
        placement.rate.micros,
        placement.offer.id,
    )


def ranking_cost(placement: Placement) -> Money:
    """USD for the ranking: expected cost, or the price of a useful hour if the work is unknown, plus the surcharge (the
    value of time), which is never charged."""
    price = placement.expected_cost if placement.duration is not None else effective_price(placement)
    return price + placement.surcharge


def uncharged_terms(placement: Placement, value_of_time: Money) -> tuple[CostTerm, ...]:
    """The terms of `ranking_cost` that are never charged; the placement's own cost terms are the rest.
    ``value_of_time``: USD per hour, as used in the ranking.
    """
    terms = []
    useful = placement.throughput * placement.useful_fraction
    if placement.duration is None and (extra := effective_price(placement) - placement.rate):
        explanation = f"an hour there is {useful:.3g} useful hours of the reference machine"
        terms.append(CostTerm("for a useful hour", extra, explanation))
    time = hours(1 / useful) if placement.duration is None else duration_in_hours(placement.duration)
    if placement.surcharge:
        terms.append(CostTerm("value of time", placement.surcharge, f"{time} × {value_of_time}/h"))
    return tuple(terms)


def _emissions(placement: Placement) -> float:
    """Emissions of the job there, or of a useful hour if its length is unknown; unknown emissions rank last."""
    if placement.kg_co2e_per_hour is None:
        return math.inf
    if placement.kg_co2e is not None:
        return placement.kg_co2e
    return placement.kg_co2e_per_hour / (placement.throughput * placement.useful_fraction)
