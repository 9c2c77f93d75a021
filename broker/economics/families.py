"""The probable shape of a model with known size only, from published families (``families.toml``)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

from broker.core.packaged import packaged
from broker.economics.model import ModelShape
from broker.economics.units import parameter_count

NEAR = 0.08
"""Relative difference of parameters up to which a published model's shape is used unchanged, not interpolated."""

_EXACT = 0.02  # the same for a mixture of experts, whose size says little about its shape


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A published model: its ``name``, number of ``parameters``, ``shape`` and source. ``dense``: no mixture."""

    name: str
    parameters: float
    shape: ModelShape
    dense: bool
    source: str


def shape_for(parameters: float) -> tuple[ModelShape, str]:
    """The probable shape of a model of this size, and its origin in words.

    The nearest published dense model within `NEAR`, or a mixture of the same size; otherwise layers, hidden size and
    MLP width between the two neighbors in proportion to the logarithm of the size (beyond the table: those of its end,
    scaled with the cube root). Heads and vocabulary are the nearest one's.
    """
    size = parameter_count(parameters)
    mixtures = [one for one in published() if not one.dense and abs(one.parameters / size - 1) <= _EXACT]
    dense = [one for one in published() if one.dense]
    near = min(mixtures or dense, key=lambda one: abs(math.log(one.parameters / size)))
    if mixtures or abs(near.parameters / size - 1) <= NEAR:
        return near.shape, f"shape taken from {near.name} ({near.parameters / 1e9:.3g}B), the nearest published model"
    below = max((one for one in dense if one.parameters < size), key=lambda one: one.parameters, default=None)
    above = min((one for one in dense if one.parameters > size), key=lambda one: one.parameters, default=None)
    if below is None or above is None:
        scale = math.cbrt(size / near.parameters)
        return _scaled(near.shape, scale, scale, scale), f"shape scaled from {near.name}, the nearest published model"
    share = math.log(size / below.parameters) / math.log(above.parameters / below.parameters)

    def between(low: int, high: int, of: int) -> float:
        return math.exp((1 - share) * math.log(low) + share * math.log(high)) / of

    low, high = below.shape, above.shape
    shape = _scaled(
        near.shape,
        between(low.layers, high.layers, near.shape.layers),
        between(low.hidden, high.hidden, near.shape.hidden),
        between(low.width or 1, high.width or 1, near.shape.width or 1),
    )
    return shape, f"shape interpolated between {below.name} and {above.name}"


def completed(shape: ModelShape, parameters: float) -> tuple[ModelShape, tuple[str, ...]]:
    """A given shape; a missing vocabulary is taken from the nearest published model."""
    if shape.vocabulary is not None:
        return shape, ()
    nearest, _ = shape_for(parameters)
    return (
        replace(shape, vocabulary=nearest.vocabulary, tied=nearest.tied),
        (f"vocabulary taken as {nearest.vocabulary:,}, as in published models of that size",),
    )


@cache
def published() -> tuple[PublishedModel, ...]:
    """The published families, smallest first."""
    found = []
    for row in packaged("broker.economics", "families.toml")["families"]:
        name, parameters, source = row.pop("name"), row.pop("parameters"), row.pop("source")
        dense = row.pop("dense", True)
        found.append(PublishedModel(name, parameters, ModelShape(**row), dense, source))
    return tuple(sorted(found, key=lambda one: one.parameters))


def _scaled(shape: ModelShape, layers: float, hidden: float, width: float) -> ModelShape:
    """The shape with as many heads as the hidden size has room for, in groups as before."""
    group = shape.heads // shape.kv_heads
    size = max(1, round(shape.hidden * hidden))
    kv_heads = max(1, round(shape.kv_heads * hidden))
    return replace(
        shape,
        layers=max(1, round(shape.layers * layers)),
        hidden=size,
        heads=kv_heads * group,
        kv_heads=kv_heads,
        width=None if shape.width is None else max(1, round(shape.width * width)),
    )
