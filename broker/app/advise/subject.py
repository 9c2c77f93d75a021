"""The model that advice is about: from flags, a Hugging Face ``config.json``, or the ``model:`` of a job file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from broker.core.errors import InvalidInput
from broker.economics.kinds import Method, Precision, Recomputation
from broker.economics.memory import ModelUse
from broker.economics.model import ModelShape, read_config, shape_from
from broker.economics.units import parameter_count

_LARGEST_CONFIG = 4_000_000  # bytes; real ones are a few thousand


@dataclass(frozen=True, slots=True)
class Architecture:
    """The stated figures of an architecture; None where none is stated."""

    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None

    @property
    def said(self) -> bool:
        return any(value is not None for value in (self.layers, self.hidden, self.heads, self.kv_heads, self.head_dim))


@dataclass(frozen=True, slots=True)
class Subject:
    """A model: ``parameters``, those ``active`` for one token, its ``shape`` if known, and ``notes`` on assumed
    figures. ``kv_only``: the shape is sufficient for the KV cache only."""

    parameters: float
    active: float
    shape: ModelShape | None
    notes: tuple[str, ...]
    kv_only: bool = False

    def workload(
        self,
        method: Method,
        precision: Precision | None = None,
        *,
        batch: int = 1,
        context: int = 0,
        recomputation: Recomputation | None = None,
        kv_precision: Precision = Precision.FP16,
    ) -> ModelUse:
        """A use of the model. A shape that is sufficient for the KV cache only is not used to estimate activations."""
        shape = None if self.kv_only and method is not Method.INFERENCE else self.shape
        return ModelUse(self.parameters, method, precision, batch, context, shape, recomputation, kv_precision)


def subject(
    parameters: float | None = None,
    config: Path | None = None,
    architecture: Architecture | None = None,
    active: float | None = None,
) -> Subject:
    """The model. Stated figures take precedence over those in ``config.json``.

    Raises InvalidInput without parameters and configuration, and for an incomplete architecture.
    """
    said = architecture or Architecture()
    notes: list[str] = []
    shape: ModelShape | None = None
    if config is not None:
        read = read_config(_parsed(config), where=str(config))
        shape = _changed(read.shape, said)
        if parameters is None:
            parameters, active = read.parameters, active or read.active_parameters
            notes.append(f"{parameters / 1e9:.2f}B parameters counted from {config.name}")
    elif said.said:
        if said.layers is None:
            raise InvalidInput(
                "architecture: the number of layers is missing", hint="give --layers too, or --config with config.json"
            )
        shape, assumed = shape_from(
            layers=said.layers, hidden=said.hidden, heads=said.heads, kv_heads=said.kv_heads, head_dim=said.head_dim
        )
        notes += assumed
    if parameters is None:
        raise InvalidInput(
            "the model's size is missing", hint="give --parameters 7B, or --config with its Hugging Face config.json"
        )
    parameter_count(parameters)
    if active is not None and not 0 < active <= parameters:
        raise InvalidInput(f"active parameters: expected above 0, up to all {parameters:g}, got {active:g}")
    kv_only = config is None and said.said and said.hidden is None
    return Subject(parameters, active or parameters, shape, tuple(notes), kv_only)


def _changed(shape: ModelShape, said: Architecture) -> ModelShape:
    heads = said.heads or shape.heads
    return replace(
        shape,
        layers=said.layers or shape.layers,
        hidden=said.hidden or shape.hidden,
        heads=heads,
        kv_heads=said.kv_heads or min(shape.kv_heads, heads),
        head_dim=said.head_dim or shape.head_dim,
    )


def _parsed(config: Path) -> Mapping[str, Any]:
    """The file's content. Raises InvalidInput if it cannot be read or is not a JSON object."""
    hint = "expected the config.json that lies beside a model's weights, as a local file"
    path = config / "config.json" if config.is_dir() else config
    try:
        if path.stat().st_size > _LARGEST_CONFIG:
            raise InvalidInput("too large to be a model's configuration", where=str(path), hint=hint)
        parsed = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=str(path), hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"is not JSON: {error}", where=str(path), hint=hint) from error
    if not isinstance(parsed, dict):
        raise InvalidInput("is not a JSON object", where=str(path), hint=hint)
    return parsed
