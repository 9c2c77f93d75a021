"""The speed of a serving replica against published measurements (``published.toml``)."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from broker.core.packaged import packaged
from broker.core.values.accelerators import lookup
from broker.economics import families
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.kinds import Precision
from broker.economics.replica import ServedModel, replica_speed


@dataclass(frozen=True, slots=True)
class ServingMeasurement:
    """A published measurement of output tokens per second, of a ``model`` on ``gpus`` of an ``accelerator``.

    ``batch``: the fixed batch size, if it was fixed; otherwise ``most_sequences``: the engine's limit. ``seen``: used
    to choose constants.
    """

    name: str
    model: ServedModel
    accelerator: str
    gpus: int
    batch: int | None
    most_sequences: int | None
    tokens_per_second: float
    seen: bool
    source: str
    address: str


@dataclass(frozen=True, slots=True)
class ServingComparison:
    """A measurement and its estimate in output tokens per second (None: by the estimate the model does not fit).
    ``ratio``: estimate / measurement."""

    measured: ServingMeasurement
    estimated: float | None
    ratio: float | None


@dataclass(frozen=True, slots=True)
class RatioSummary:
    """Of ``rows`` comparisons: median, smallest and largest ratio, the share within a factor of 1.25 and of 2."""

    rows: int
    median: float
    smallest: float
    largest: float
    within_1_25: float
    within_2: float


def compare(
    measurements: Iterable[ServingMeasurement] | None = None, rules: Assumptions = DEFAULTS
) -> tuple[ServingComparison, ...]:
    """Each measurement with its estimate."""
    found = []
    for row in measured() if measurements is None else measurements:
        own = rules if row.most_sequences is None else replace(rules, serving_most_sequences=row.most_sequences)
        speed = replica_speed(row.model, lookup(row.accelerator), row.gpus, row.batch, own)
        tokens = None if speed is None else speed.tokens_per_second
        ratio = None if tokens is None else tokens / row.tokens_per_second
        found.append(ServingComparison(row, tokens, ratio))
    return tuple(found)


def summary(comparisons: Iterable[ServingComparison]) -> RatioSummary:
    """The summary of the ratios. Raises ValueError without comparisons."""
    ratios = [one.ratio for one in comparisons if one.ratio]
    if not ratios:
        raise ValueError("expected at least one comparison")
    within = {limit: sum(1 / limit <= one <= limit for one in ratios) / len(ratios) for limit in (1.25, 2.0)}
    return RatioSummary(
        len(ratios), statistics.median(ratios), min(ratios), max(ratios), within[1.25], within[2.0]
    )  # fmt: skip


@cache
def measured() -> tuple[ServingMeasurement, ...]:
    """The published measurements, in the order of the file."""
    data = packaged("broker.backtest.serving", "published.toml")
    models = {one.name: one for one in families.published()}
    found = []
    for row in data["measurements"]:
        model, source = models[row["model"]], data["sources"][row["source"]]
        served = ServedModel(
            model.parameters,
            model.parameters,
            model.shape,
            Precision(row["precision"]),
            row["prompt"],
            row["output"],
            Precision(row.get("kv_precision", "fp16")),
            row.get("cached", 0.0),
            eager=row.get("eager", False),
        )
        found.append(
            ServingMeasurement(
                row["model"],
                served,
                row["accelerator"],
                row["gpus"],
                row.get("batch"),
                row.get("most_sequences"),
                row["tokens_per_second"],
                row["seen"],
                source["title"],
                source["address"],
            )
        )
    return tuple(found)
