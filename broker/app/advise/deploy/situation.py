"""A demand, and the advice on it: steps with their figures, and files.

The last steps of every deployment: savings, monitoring, carbon, and review.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import PlainSerializer

from broker.app.advise.prices import Places
from broker.app.documents import plain
from broker.core.errors import InvalidInput, UnknownName
from broker.core.market.accelerators import Accelerator
from broker.economics.assumptions import Assumptions
from broker.economics.buy_or_rent import share_in_use
from broker.economics.energy import footprint, grid_near
from broker.economics.figures import EstimatedUsd, number_text, usd
from broker.economics.kinds import Fact, Goal, Method
from broker.economics.memory import Subject
from broker.economics.savings import ladder

_USD = re.compile(r"(^|_)usd(_|$)")


def _json_figures(figures: dict[str, Any]) -> dict[str, Any]:
    """Amounts, whose names say that they are in USD, as decimal strings."""
    amounts = {name: value for name, value in figures.items() if _USD.search(name) and type(value) in (int, float)}
    document: dict[str, Any] = plain(figures | {name: usd(value) for name, value in amounts.items()})
    return document


StepFigures = Annotated[dict[str, Any], PlainSerializer(_json_figures, return_type=dict[str, Any], when_used="json")]
"""The figures of a step, of different types."""


@dataclass(frozen=True, slots=True)
class DeployDemand:
    """What is deployed, besides the assumptions. ``budget_usd``: for the run, or a month of serving; None: no limit.
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


@dataclass(frozen=True, slots=True)
class DecidedSavings:
    """The decisions of earlier steps. ``interruptible``: whether spot is possible; ``spot``: whether it is used;
    ``quantized``: whether the weights are quantized already."""

    interruptible: bool
    committed: bool
    spot: bool = False
    quantized: bool = False


def closing_steps(
    situation: DeployDemand,
    card: Accelerator,
    gpus: int,
    hours: float,
    decisions: DecidedSavings,
    assumptions: Assumptions,
    where: str,
) -> tuple[PathStep, ...]:
    """``hours``: of a run, or in use per month, at ``where`` (``provider/region``; empty: not known). Savings that an
    earlier step already decided on are skipped."""
    is_serving = situation.goal is Goal.SERVE
    if "location" not in assumptions.stated:
        assumptions = replace(assumptions, location=grid_near(where)[0].region)
    target = assumptions.inference_utilization if is_serving else assumptions.training_utilization
    facts = {
        Fact.INTERRUPTIBLE: decisions.interruptible,
        Fact.COMMITTED: decisions.committed,
        Fact.ON_SPOT: decisions.spot,
        Fact.QUANTIZED: decisions.quantized,
        Fact.CHECKPOINTED: not is_serving,
    }
    share = share_in_use(assumptions) if is_serving else 0.0
    advice = ladder(
        situation.model.parameters,
        Method.INFERENCE if is_serving else None,
        [fact for fact, holds in facts.items() if holds],
        replace(
            assumptions, gpu_utilization=target, steady_share=share, spare_hours_share=1 - share if is_serving else 0.0
        ),
    )
    top_savings = [saving for saving in advice if saving.applies][:4]
    return (
        PathStep(
            "optimizations",
            "savings in order; each applies to the cost remaining after the earlier ones",
            {
                saving.name: f"{saving.saving_low:.0%}-{saving.saving_high:.0%}; then measure {saving.measure}"
                for saving in top_savings
            },
            f"start with: {', '.join(saving.name for saving in top_savings[:2])}",
        ),
        PathStep(
            "monitoring",
            "GPU compute and memory utilization, idle hours, cost per unit, spend against budget",
            {"target_utilization": target, "idle_hours_below": assumptions.idle_hours_below},
            "`gpubroker policy findings` and `gpubroker report spend`, weekly",
        ),
        _sustainability(situation, card, gpus, hours, target, assumptions),
        PathStep(
            "revisit",
            "advice is as old as its prices",
            {"prices": "monthly", "quality bar": "with each new model", "hardware": "with each generation"},
            "run this again if prices move by a fifth, use changes by a third or a smaller model meets the quality bar",
        ),
    )


def _sustainability(
    situation: DeployDemand, card: Accelerator, gpus: int, hours: float, busy: float, assumptions: Assumptions
) -> PathStep:
    rule = "kWh = power × hours × PUE; kg CO2e by the grid of the place"
    try:
        energy_use = footprint(card, gpus=gpus, hours=hours, utilization=busy, assumptions=assumptions)
    except (InvalidInput, UnknownName) as error:
        return PathStep(
            "sustainability", rule, {"not known": str(error)}, "give --location, or a card with a known power"
        )
    clean = energy_use.kwh * assumptions.clean_grid_g_per_kwh / 1000
    return PathStep(
        "sustainability",
        rule,
        {
            "kwh": energy_use.kwh, "kg_co2e": energy_use.kg_co2e, "kg_co2e_low": energy_use.kg_co2e_low,
            "kg_co2e_high": energy_use.kg_co2e_high, "range": energy_use.range_source,
            "grams_per_kwh": energy_use.intensity.grams_per_kwh, "location": energy_use.intensity.region,
            "pue": energy_use.pue,
        },
        f"{number_text(energy_use.kg_co2e)} kg CO2e ({number_text(energy_use.kg_co2e_low)} to "
        f"{number_text(energy_use.kg_co2e_high)} kg by the grid of "
        f"the hours); {number_text(clean)} kg on a clean grid: a guardrail max_kg_co2e caps it",
    )  # fmt: skip
