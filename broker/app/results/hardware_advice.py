"""Advice on accelerators: performance per dollar, energy and carbon."""

from __future__ import annotations

from broker.app.results.advice_values import Advice, Estimate, EstimatedUsd, Gib, Usd
from broker.app.results.values import Figure, Result
from broker.core.market.offers import CapacityType
from broker.economics.energy import GridIntensity, Scorecard
from broker.economics.hardware import RadarRow
from broker.economics.images import ImageMemory, ImageMethod
from broker.economics.kinds import BoundBy


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
    kg_co2e: Estimate
    grams_per_kwh: Figure


class EcoAdvice(Advice):
    """Energy and carbon. ``watts``: average power of a GPU. ``kg_co2e_low``, ``_high``: the range that the grid
    of these hours may be in; ``range_source``: where that comes from."""

    gpu: str
    gpus: int
    hours: Figure
    utilisation: Figure
    location: str
    watts: Figure
    kwh: Estimate
    kg_co2e: Estimate
    kg_co2e_low: Estimate
    kg_co2e_high: Estimate
    range_source: str
    pue: Figure
    intensity: GridIntensity
    scorecard: Scorecard
    cleaner: list[CleanerLocation]


class EmbedOption(Result):
    """An accelerator for the embedding of a collection; GPU-hours with those that spot repeats."""

    accelerator: str
    items_per_second: Estimate
    gpu_hours: Estimate
    usd: EstimatedUsd
    capacity_type: CapacityType
    usd_per_gpu_hour: Usd
    where: str
    batch: int


class EmbedAdvice(Advice):
    """The embedding of a collection, the cheapest accelerator first. Sizes are GB (10⁹ bytes)."""

    items: Figure
    tokens_per_item: int
    vectors_gb: Estimate
    index_gb: Estimate
    options: list[EmbedOption]


class ImageMemoryFigures(Result):
    """GiB on a GPU. Copies and activations are there at the loss, gradients and what is recomputed at a step's end."""

    weights_gib: Gib
    optimizer_gib: Gib
    copies_gib: Gib
    activations_gib: Gib
    gradients_gib: Gib
    recomputed_gib: Gib
    runtime_gib: Gib

    @classmethod
    def of(cls, memory: ImageMemory) -> ImageMemoryFigures:
        return cls(**{name: getattr(memory, name) for name in cls.model_fields})


class ImagesOption(Result):
    """An accelerator that holds the network with this batch; null where no speed, price or number is known."""

    accelerator: str
    largest_batch: int
    images_per_second: Estimate | None
    gpu_hours: Estimate | None
    usd: EstimatedUsd | None
    usd_per_gpu_hour: Usd | None
    capacity_type: CapacityType | None
    where: str | None


class ImagesAdvice(Advice):
    """A network on images: memory on one GPU, and the accelerators that hold it, the least cost an image first."""

    network: str
    parameters: Figure
    method: ImageMethod
    batch: int
    size: int
    checkpointing: bool
    memory: ImageMemoryFigures
    total_gib: Gib
    options: list[ImagesOption]
