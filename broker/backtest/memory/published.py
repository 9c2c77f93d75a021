"""The memory estimates of `broker.economics` against published measurements (``published.toml``)."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

from broker.core.packaged import packaged
from broker.economics import families
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.kinds import Adapted, Method, Precision, Recomputation
from broker.economics.memory import ModelUse, ParallelLayout, estimate
from broker.economics.model import ModelShape


@dataclass(frozen=True, slots=True)
class MemoryMeasurement:
    """A published measurement of memory per GPU (GiB), for a ``use`` of a ``model`` in a ``layout``.

    ``trained``: parameters of the adapter, if there is one. ``logit_bytes``: bytes per logit of the loss, if the source
    gives them; ``gradient_bytes`` and ``optimizer_bytes``: of a trained parameter, ``adapter_input_bytes``: of a value
    that enters an adapter, likewise. ``whole_prompt``: the engine reads the prompt at once. ``seen``: used to choose
    constants.
    """

    model: str
    use: ModelUse
    layout: ParallelLayout
    trained: int | None
    logit_bytes: float | None
    gradient_bytes: float | None
    optimizer_bytes: float | None
    adapter_input_bytes: float | None
    whole_prompt: bool
    gib: float
    seen: bool
    source: str
    address: str


@dataclass(frozen=True, slots=True)
class MemoryComparison:
    """A measurement and its estimate, GiB on each GPU; ``error``: estimate ÷ measured − 1."""

    measured: MemoryMeasurement
    estimated_gib: float
    error: float


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """Of ``rows`` comparisons: the median and largest of the absolute errors, and the share within 10 % and 25 %."""

    rows: int
    median: float
    worst: float
    within_10: float
    within_25: float


def compare(
    measurements: Iterable[MemoryMeasurement] | None = None,
    rules: Assumptions = DEFAULTS,
    *,
    by_size: bool = False,
    usual_loss: bool = False,
) -> tuple[MemoryComparison, ...]:
    """Each measurement with its estimate. ``by_size``: estimated from the number of parameters alone, without the
    model's configuration. ``usual_loss``: with the default loss even if the source's code uses another one."""
    found = []
    for row in measured() if measurements is None else measurements:
        use = replace(row.use, shape=None) if by_size else row.use
        own = rules if row.trained is None else replace(rules, adapter_fraction=row.trained / use.parameters)
        if row.logit_bytes is not None and not usual_loss:
            own = replace(own, logit_bytes=row.logit_bytes)
        if row.gradient_bytes is not None and row.optimizer_bytes is not None:
            own = replace(own, gradient_bytes=row.gradient_bytes, adamw_bytes=row.optimizer_bytes)
        if row.adapter_input_bytes is not None:
            own = replace(own, adapter_input_bytes=row.adapter_input_bytes)
        needs = estimate(use, row.layout, own)
        gib = needs.per_gpu_gib + (needs.prefill_gib / row.layout.tensor if row.whole_prompt else 0.0)
        found.append(MemoryComparison(row, gib, gib / row.gib - 1))
    return tuple(found)


class Compared(Protocol):
    """A measurement beside its estimate."""

    @property
    def error(self) -> float: ...


def summary(comparisons: Iterable[Compared]) -> ErrorSummary:
    """The summary of the errors. Raises ValueError without comparisons."""
    errors = [abs(one.error) for one in comparisons]
    if not errors:
        raise ValueError("expected at least one comparison")
    share = {limit: sum(error <= limit for error in errors) / len(errors) for limit in (0.10, 0.25)}
    return ErrorSummary(len(errors), statistics.median(errors), max(errors), share[0.10], share[0.25])


@cache
def measured() -> tuple[MemoryMeasurement, ...]:
    """The published measurements, in the order of the file."""
    data = packaged("broker.backtest.memory", "published.toml")
    models = {one.name: (one.parameters, one.shape) for one in families.published()}
    for row in data["models"]:
        name, parameters, _ = row.pop("name"), row.pop("parameters"), row.pop("source")
        models[name] = (parameters, ModelShape(**row))
    return tuple(_measurement(row, models, data["sources"][row["source"]]) for row in data["measurements"])


def _measurement(
    row: dict[str, Any], models: dict[str, tuple[float, ModelShape]], source: dict[str, str]
) -> MemoryMeasurement:
    parameters, shape = models[row["model"]]
    precision, recompute = row.get("precision"), row.get("recompute")
    use = ModelUse(
        parameters,
        Method(row["method"]),
        None if precision is None else Precision(precision),
        batch=row.get("batch", 1),
        context=row["context"],
        shape=shape,
        recomputation=None if recompute is None else Recomputation(recompute),
        gradients_freed=row.get("gradients_freed", False),
        adapted=Adapted(row.get("adapted", "all")),
    )
    layout = ParallelLayout(row.get("gpus", 1), row.get("tensor", 1), row.get("pipeline", 1), row.get("zero", 0))
    return MemoryMeasurement(
        model=row["model"],
        use=use,
        layout=layout,
        trained=row.get("trained"),
        logit_bytes=row.get("logit_bytes"),
        gradient_bytes=row.get("gradient_bytes"),
        optimizer_bytes=row.get("optimizer_bytes"),
        adapter_input_bytes=row.get("adapter_input_bytes"),
        whole_prompt=row.get("whole_prompt", False),
        gib=row["gib"],
        seen=row["seen"],
        source=source["title"],
        address=source["address"],
    )
