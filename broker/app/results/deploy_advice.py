"""A deployment as a result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Self

from broker.app.advise.deploy.situation import Deployment
from broker.app.advise.goal import Goal
from broker.app.results.advice_values import Advice, EstimatedUsd, usd
from broker.app.results.values import Facts, Result


class DeploymentStep(Result):
    """A step: the rule that was applied, its figures by name, the decision."""

    step: str
    rule: str
    numbers: Facts
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

    @classmethod
    def of_deployment(cls, found: Deployment) -> Self:
        steps = [DeploymentStep.from_parts(one, numbers=_numbers(one.numbers)) for one in found.steps]
        return cls.from_parts(found, steps=steps)


_USD = re.compile(r"(^|_)usd(_|$)")


def _numbers(figures: Mapping[str, object]) -> dict[str, object]:
    """The figures of a step, of different types; the names of amounts in USD say so."""
    return {name: _figure(value) if _USD.search(name) else value for name, value in figures.items()}


def _figure(value: object) -> object:
    return usd(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
