"""A demand, and the advice on it: steps with their figures, and files."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import PlainSerializer

from broker.app.advise.places import Places
from broker.app.results.values import plain
from broker.economics.figures import EstimatedUsd, usd
from broker.economics.kinds import Goal, Method
from broker.economics.memory import Subject

_USD = re.compile(r"(^|_)usd(_|$)")


def _written(figures: dict[str, Any]) -> dict[str, Any]:
    """Amounts, whose names say that they are in USD, as decimal strings."""
    amounts = {name: value for name, value in figures.items() if _USD.search(name) and type(value) in (int, float)}
    written: dict[str, Any] = plain(figures | {name: usd(value) for name, value in amounts.items()})
    return written


StepFigures = Annotated[dict[str, Any], PlainSerializer(_written, return_type=dict[str, Any], when_used="json")]
"""The figures of a step, of different types."""


@dataclass(frozen=True, slots=True)
class DeployDemand:
    """What is deployed, beside the assumptions. ``budget_usd``: for the run, or a month of serving; None: no limit.
    ``sensitive``: data must stay on owned machines, or within the ``places`` if those are limited. ``method``: None:
    the cheapest suitable one."""

    goal: Goal
    model: Subject
    name: str
    method: Method | None = None
    budget_usd: float | None = None
    sensitive: bool = False
    places: Places = field(default_factory=Places)

    @property
    def owned_only(self) -> bool:
        """Whether only owned machines are allowed: the data are sensitive, and no place is named where they may go."""
        return self.sensitive and not self.places.limited


@dataclass(frozen=True, slots=True)
class PathStep:
    """One step: the applied ``rule``, its inputs and results (``numbers``), the decision."""

    step: str
    rule: str
    numbers: StepFigures
    decision: str


@dataclass(frozen=True, slots=True)
class DeployAdvice:
    """The advice. ``verdict``: ``rent``, ``buy``, ``hybrid`` or ``own``. ``job_file`` and ``policy_file``: YAML, ready
    to use; ``burst_file``: of a hybrid, the job for demand above the steady part, else empty. ``warnings``: limits that
    cannot be met. ``usd``: of the run, or of a month of serving."""

    goal: Goal
    verdict: str
    title: str
    accelerator: str
    gpus: int
    usd: EstimatedUsd
    fits_budget: bool
    meets_deadline: bool
    steps: tuple[PathStep, ...]
    warnings: tuple[str, ...]
    assumptions: tuple[str, ...]
    job_file: str
    policy_file: str
    burst_file: str = ""
