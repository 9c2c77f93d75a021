"""The probable shape of a model with known size only, from published families (``families.toml``)."""

import math
from dataclasses import dataclass, replace
from functools import cache

from broker.core.extras import load_packaged_toml
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
    mixtures = [model for model in published_models() if not model.dense and abs(model.parameters / size - 1) <= _EXACT]
    dense = [model for model in published_models() if model.dense]
    nearest = min(mixtures or dense, key=lambda model: abs(math.log(model.parameters / size)))
    if mixtures or abs(nearest.parameters / size - 1) <= NEAR:
        return (
            nearest.shape,
            f"shape taken from {nearest.name} ({nearest.parameters / 1e9:.3g}B), the nearest published model",
        )
    next_smaller = max(
        (model for model in dense if model.parameters < size), key=lambda model: model.parameters, default=None
    )
    next_larger = min(
        (model for model in dense if model.parameters > size), key=lambda model: model.parameters, default=None
    )
    if next_smaller is None or next_larger is None:
        scale = math.cbrt(size / nearest.parameters)
        return _scale_shape(
            nearest.shape, scale, scale, scale
        ), f"shape scaled from {nearest.name}, the nearest published model"
    share = math.log(size / next_smaller.parameters) / math.log(next_larger.parameters / next_smaller.parameters)

    def interpolate(low: int, high: int, base: int) -> float:
        return math.exp((1 - share) * math.log(low) + share * math.log(high)) / base

    low, high = next_smaller.shape, next_larger.shape
    shape = _scale_shape(
        nearest.shape,
        interpolate(low.layers, high.layers, nearest.shape.layers),
        interpolate(low.hidden, high.hidden, nearest.shape.hidden),
        interpolate(low.width or 1, high.width or 1, nearest.shape.width or 1),
    )
    return shape, f"shape interpolated between {next_smaller.name} and {next_larger.name}"


def with_vocabulary(shape: ModelShape, parameters: float) -> tuple[ModelShape, tuple[str, ...]]:
    """A given shape; a missing vocabulary is taken from the nearest published model."""
    if shape.vocabulary is not None:
        return shape, ()
    nearest, _ = shape_for(parameters)
    return (
        replace(shape, vocabulary=nearest.vocabulary, tied=nearest.tied),
        (f"vocabulary taken as {nearest.vocabulary:,}, as in published models of that size",),
    )


@cache
def published_models() -> tuple[PublishedModel, ...]:
    """The published families, smallest first."""
    models = []
    for row in load_packaged_toml("broker.economics", "families.toml")["families"]:
        name, parameters, source = row.pop("name"), row.pop("parameters"), row.pop("source")
        dense = row.pop("dense", True)
        models.append(PublishedModel(name, parameters, ModelShape(**row), dense, source))
    return tuple(sorted(models, key=lambda model: model.parameters))


def _scale_shape(shape: ModelShape, layers: float, hidden: float, width: float) -> ModelShape:
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
