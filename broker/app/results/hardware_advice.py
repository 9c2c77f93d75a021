"""Advice on accelerators: performance per dollar, energy and carbon."""

from __future__ import annotations

from broker.app.results.advice_values import Advice, Usd
from broker.app.results.values import Figure, Result
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
