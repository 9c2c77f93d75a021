"""Memory and speed of networks on images: `broker.economics.images` against measurements (``images.toml``)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from broker.core.packaged import packaged
from broker.core.values.accelerators import lookup
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.images import ImageMethod, ImageOptimizer, ImageUse, image_memory, image_speed, network_of

CARD = "H100"
OWN = "Own measurement: H100 80GB HBM3, driver 580.159.04, PyTorch 2.11.0+cu130, 2026-11-26"


@dataclass(frozen=True, slots=True)
class ImageMeasurement:
    """Measured GiB on the card, and items per second (None: not reported, or of another card), of a ``use``.
    ``trained``: parameters of the adapter. ``seen``: used to choose constants. ``address``: of a published
    measurement."""

    use: ImageUse
    trained: int | None
    gib: float
    items_per_second: float | None
    seen: bool
    source: str
    address: str


@dataclass(frozen=True, slots=True)
class ImageComparison:
    """A measurement and its estimate. ``error``: of the memory, estimate ÷ measured − 1; ``ratio``: of the speed, where
    one was measured."""

    measured: ImageMeasurement
    estimated_gib: float
    error: float
    ratio: float | None


def compare_images(
    measurements: Iterable[ImageMeasurement] | None = None, rules: Assumptions = DEFAULTS
) -> tuple[ImageComparison, ...]:
    """Each measurement with its estimate."""
    found = []
    for row in measured_images() if measurements is None else measurements:
        known = rules
        if row.trained is not None:
            known = replace(rules, adapter_fraction=row.trained / row.use.network.parameters)
        gib, speed = image_memory(row.use, known).total_gib, image_speed(row.use, lookup(CARD), known)
        rate = speed.at_batch if speed else None
        ratio = rate / row.items_per_second if rate and row.items_per_second else None
        found.append(ImageComparison(row, gib, gib / row.gib - 1, ratio))
    return tuple(found)


@cache
def measured_images() -> tuple[ImageMeasurement, ...]:
    """The measurements, in the order of the file."""
    return tuple(
        ImageMeasurement(
            use=ImageUse(
                network_of(row["network"]),
                ImageMethod(row["method"]),
                row["batch"],
                row["size"],
                row.get("checkpointing", False),
                ImageOptimizer(row.get("optimizer", "adamw")),
            ),
            trained=row.get("trained"),
            gib=row["gib"],
            items_per_second=row.get("items_per_second"),
            seen=row["seen"],
            source=row.get("source", OWN),
            address=row.get("address", ""),
        )
        for row in packaged("broker.backtest.memory", "images.toml")["measurements"]
    )
