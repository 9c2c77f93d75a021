"""Advice on accelerators: performance per dollar, energy and carbon."""

from __future__ import annotations

from broker.app.results.advice_values import Advice, Usd
from broker.app.results.values import Figure, Result
from broker.core.market.offers import CapacityType
from broker.economics.energy import GridIntensity, Scorecard
from broker.economics.hardware import BoundBy, RadarRow


class RankedHardware(Result):
    """The performance of an accelerator per 1000 USD in the limiting resource."""

    accelerator: str
    usd: Usd
    per_kusd: Figure
    linked: bool


class HardwareTrial(Result):
    """A measured candidate."""

    name: str
    usd_per_unit: Usd
    times_cheapest: Figure


class HardwareAdvice(Advice):
    """Hardware compared. ``per``: what the prices are; ``unpriced``: accelerators without a known price."""

    bound_by: BoundBy
    per: str
    ranking: list[RankedHardware]
    radar: list[RadarRow]
    trials: list[HardwareTrial]
    unpriced: list[str]


class CleanerLocation(Result):
    """A cleaner location, and the emissions of the same energy there."""

    location: str
    kg_co2e: Figure
    grams_per_kwh: Figure


class EcoAdvice(Advice):
    """Energy and carbon. ``watts``: average power of a GPU."""

    gpu: str
    gpus: int
    hours: Figure
    utilisation: Figure
    location: str
    watts: Figure
    kwh: Figure
    kg_co2e: Figure
    pue: Figure
    intensity: GridIntensity
    scorecard: Scorecard
    cleaner: list[CleanerLocation]


class EmbedOption(Result):
    """An accelerator for the embedding of a collection; GPU-hours with those that spot repeats."""

    accelerator: str
    items_per_second: Figure
    gpu_hours: Figure
    usd: Usd
    capacity_type: CapacityType
    usd_per_gpu_hour: Usd
    where: str
    batch: int


class EmbedAdvice(Advice):
    """The embedding of a collection, the cheapest accelerator first. Sizes are GB (10⁹ bytes)."""

    items: Figure
    tokens_per_item: int
    vectors_gb: Figure
    index_gb: Figure
    options: list[EmbedOption]
