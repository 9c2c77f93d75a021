"""A deployment as a result."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import PlainSerializer

from broker.app.results.advice_values import Advice, EstimatedUsd, usd
from broker.app.results.values import Result, plain
from broker.economics.kinds import Goal

_USD = re.compile(r"(^|_)usd(_|$)")


def _written(figures: dict[str, Any]) -> dict[str, Any]:
    """Amounts, whose names say that they are in USD, as decimal strings."""
    amounts = {name: value for name, value in figures.items() if _USD.search(name) and type(value) in (int, float)}
    written: dict[str, Any] = plain(figures | {name: usd(value) for name, value in amounts.items()})
    return written


StepFigures = Annotated[dict[str, Any], PlainSerializer(_written, return_type=dict[str, Any], when_used="json")]
"""The figures of a step, of different types."""


class DeploymentStep(Result):
    """A step: the rule that was applied, its figures by name, the decision."""

    step: str
    rule: str
    numbers: StepFigures
    decision: str


class DeployAdvice(Advice):
    """A deployment. ``usd``: of the run, or of a month of serving; ``job_file`` and ``policy_file``: YAML;
    ``burst_file``: the job for demand above the steady part, of a hybrid, else empty."""

    goal: Goal
    verdict: str
    summary: str
    accelerator: str
    gpus: int
    usd: EstimatedUsd
    fits_budget: bool
    meets_deadline: bool
    steps: list[DeploymentStep]
    warnings: list[str]
    job_file: str
    policy_file: str
    burst_file: str
