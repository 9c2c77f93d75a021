"""The model that advice is about: its size, or a Hugging Face ``config.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from broker.core.errors import InvalidInput
from broker.economics.assumptions import Assumptions, number_of
from broker.economics.memory import Subject
from broker.economics.model import ModelShape, read_config, shape_from
from broker.economics.units import parameter_count

_LARGEST_CONFIG = 4_000_000  # bytes; real ones are a few thousand
_ARCHITECTURE = {
    "layers": "layers", "hidden": "hidden_size", "heads": "heads", "kv_heads": "kv_heads", "head_dim": "head_dim"
}  # fmt: skip


def subject(model: str | float, assumptions: Assumptions) -> Subject:
    """The model: a number of parameters, such as ``7B``, or the path of its ``config.json``. Assumptions on its
    architecture take precedence over the file. Raises InvalidInput."""
    stated = {own: value for own, name in _ARCHITECTURE.items() if (value := getattr(assumptions, name)) is not None}
    active, notes = assumptions.active_parameters, []
    shape: ModelShape | None = None
    parameters = _parameters(model)
    if parameters is None:
        config = Path(str(model))
        read = read_config(_parsed(config), where=str(config))
        parameters, active = read.parameters, active or read.active_parameters
        if "heads" in stated:
            stated.setdefault("kv_heads", min(read.shape.kv_heads, stated["heads"]))
        shape = replace(read.shape, **stated)
        notes.append(f"{parameters / 1e9:.2f}B parameters counted from {config.name}")
    elif stated:
        if "layers" not in stated:
            raise InvalidInput(
                "architecture: the number of layers is missing", hint="give --assume layers=N too, or a config.json"
            )
        shape, assumed = shape_from(**stated)
        notes += assumed
    parameter_count(parameters)
    if active is not None and active > parameters:
        raise InvalidInput(f"active_parameters: expected up to all {parameters:g}, got {active:g}")
    kv_only = _parameters(model) is not None and shape is not None and "hidden" not in stated
    return Subject(parameters, active or parameters, shape, tuple(notes), kv_only)


def _parameters(model: str | float) -> float | None:
    """The number, or None for the path of a file."""
    try:
        return number_of(model)
    except ValueError as error:
        if Path(str(model)).suffix == ".json" or Path(str(model)).exists():
            return None
        raise InvalidInput(
            f"expected a number of parameters such as 7B, or a config.json; got {str(model)[:60]!r}", where="MODEL"
        ) from error


def _parsed(config: Path) -> Mapping[str, Any]:
    """The file's content. Raises InvalidInput if it cannot be read or is not a JSON object."""
    hint = "expected a size such as 7B, or the config.json that lies beside a model's weights, as a local file"
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
