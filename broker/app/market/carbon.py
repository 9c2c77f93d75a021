"""The emissions of an hour on an offer, for ranking by carbon and for the guardrail that limits them."""

from __future__ import annotations

from functools import lru_cache

from broker.core.errors import InvalidInput, UnknownName
from broker.core.market.offers import Offer
from broker.core.values.accelerators import lookup
from broker.economics.assumptions import DEFAULTS
from broker.economics.energy import average_watts, carbon_kg, default_pue, energy_kwh, grid_near


def kg_per_hour(offer: Offer) -> float | None:
    """kg CO2e of an hour of one machine: all its accelerators at the target utilisation of training, with the PUE and
    the carbon intensity of the grid at its location (the world average if unknown). The rest of the machine is not
    counted. 0 for machines without accelerators; None if the accelerator's power is not published."""
    if offer.accelerator is None:
        return 0.0
    return _kg_per_hour(offer.accelerator, offer.count, offer.provider, offer.region)


@lru_cache(maxsize=4096)  # a market has far fewer places and machines than offers
def _kg_per_hour(accelerator: str, count: int, provider: str, region: str) -> float | None:
    place = f"{provider}/{region}"
    try:
        board = lookup(accelerator).tdp_w
        watts = average_watts(board or 0.0, DEFAULTS.training_utilization)
    except (InvalidInput, UnknownName):
        return None
    return carbon_kg(energy_kwh(watts, 1, count, default_pue(place)), grid_near(place)[0].grams_per_kwh)
