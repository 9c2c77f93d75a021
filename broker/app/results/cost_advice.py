"""Advice on cost: buying or renting, capacity types, clusters, runs, tokens, savings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Self

from broker.app.advise.history import PastUse
from broker.app.results.advice_values import Advice, Usd
from broker.app.results.values import Figure, Result
from broker.core.market.offers import CapacityType
from broker.economics.buy_or_rent import BuyOrRentInputs, BuyOrRentTotals, BuyOrRentVerdict, buy_or_rent, monthly_usd
from broker.economics.claims import RuleCheck
from broker.economics.quoted import QuotedRule
from broker.economics.savings import SavingAdvice


class BuyOrRentCase(Result):
    """The inputs of the comparison."""

    purchase_usd: Usd
    rent_usd_per_hour: Usd
    years: Figure
    utilisation: Figure
    watts: Figure
    kwh_usd: Usd
    pue: Figure
    resale_usd: Usd
    staff_usd_per_hour: Usd
    facility_usd: Usd
    discount_rate: Figure
    price_decline: Figure
    lead_time_weeks: Figure
    obsolete_after_years: Figure | None
    new_generation_speedup: Figure
    peak_to_baseline: Figure
    take_or_pay: bool


class BuyOrRentSensitivity(Result):
    """The comparison at another yearly decline of rents."""

    price_decline: Figure
    own_npv_usd: Usd
    rent_npv_usd: Usd
    break_even_utilisation: Figure | None
    verdict: BuyOrRentVerdict


class BuyOrRentByHours(Result):
    """Both present values at that many hours in use per day."""

    hours_per_day: Figure
    own_npv_usd: Usd
    rent_npv_usd: Usd


class BuyOrRentAdvice(Advice):
    """Totals and present values of both ways (costs positive), and their break-even points. ``usage``: recorded use,
    only with --from-history; ``by_hours``: from one to 24 hours per day."""

    own_total_usd: Usd
    rent_total_usd: Usd
    own_npv_usd: Usd
    rent_npv_usd: Usd
    waiting_usd: Usd
    hours: Figure
    break_even_utilisation: Figure | None
    break_even_hours_per_day: Figure | None
    break_even_rent_usd_per_hour: Usd
    payback_months: Figure | None
    verdict: BuyOrRentVerdict
    why: str
    rules_of_thumb: list[RuleCheck]
    sensitivity: list[BuyOrRentSensitivity]
    inputs: BuyOrRentCase
    running_usd_per_month: Usd
    rent_usd_per_month: Usd
    opinions: list[RuleCheck]
    usage: PastUse | None
    by_hours: list[BuyOrRentByHours]

    @classmethod
    def of_case(cls, case: BuyOrRentInputs, found: BuyOrRentTotals, notes: list[str], **more: Any) -> Self:
        """``notes``: assumptions beside those of ``found``."""
        running, rent = monthly_usd(case)
        at = ((hours, buy_or_rent(replace(case, utilisation=hours / 24))) for hours in range(1, 25))
        return cls.from_parts(
            found,
            inputs=case,
            running_usd_per_month=running,
            rent_usd_per_month=rent,
            by_hours=[BuyOrRentByHours.from_parts(totals, hours_per_day=hours) for hours, totals in at],
            assumptions=[*notes, *found.assumptions],
            **more,
        )


class WayCostResult(Result):
    """One capacity type: the sum of what is paid, its present value, and that per GPU-hour in use."""

    way: CapacityType
    total_usd: Usd
    npv_usd: Usd
    npv_usd_per_used_gpu_hour: Usd


class FlipPointResult(Result):
    """An input, its value, and the nearest value at which another capacity type is cheapest, all else equal."""

    name: str
    value: Figure
    flips_at: Figure
    then: CapacityType


class CapacityAdvice(Advice):
    """Capacity types for the same use, cheapest first. ``flips``: inputs that alone change the answer, the smallest
    change first; ``steady``: inputs that do not within a tenth to ten times their value. ``less_elsewhere``: of the
    assumptions, that another provider costs less than every way here; empty if none does."""

    gpu: str | None
    gpus: int
    provider: str | None
    machines: int
    gpus_per_machine: int
    used_gpu_hours: Figure
    ways: list[WayCostResult]
    flips: list[FlipPointResult]
    steady: list[str]
    less_elsewhere: str


class ClusterCostAdvice(Advice):
    """The cost of a GPU-hour of ownership in parts, and per hour in use, of which ``utilisation`` is the share."""

    utilisation: Figure
    hardware_usd_per_gpu_hour: Usd
    facility_usd_per_gpu_hour: Usd
    energy_usd_per_gpu_hour: Usd
    staff_usd_per_gpu_hour: Usd
    usd_per_gpu_hour: Usd
    usd_per_used_gpu_hour: Usd
    rules_of_thumb: list[RuleCheck]


class RunCostAdvice(Advice):
    """The total cost of a model in parts. ``quality_point``: what a point is, of the metric that was given."""

    compute_usd: Usd
    failed_usd: Usd
    experiments_usd: Usd
    preprocessing_usd: Usd
    storage_usd: Usd
    total_usd: Usd
    usd_per_quality_point: Usd | None
    quality_point: float | None


class SavingStep(Result):
    """A step. ``remaining_low`` and ``remaining_high``: the share of the present cost that remains after it."""

    order: int
    name: str
    applies: bool
    why: str
    saving_low: Figure
    saving_high: Figure
    remaining_low: Figure
    remaining_high: Figure
    condition: str
    measure: str
    remaining_low_usd: Usd | None
    remaining_high_usd: Usd | None


class SavingsAdvice(Advice):
    """Savings in order. ``fewer_gpus_share``: GPUs saved at the target ``utilisation`` instead of the present one."""

    steps: list[SavingStep]
    utilisation: Figure
    fewer_gpus_share: Figure
    target_utilisation: Figure
    rules_of_thumb: list[RuleCheck]

    @classmethod
    def of_steps(cls, advice: Iterable[SavingAdvice], monthly_usd: float | None, **more: Any) -> Self:
        steps = [
            SavingStep.from_parts(
                one,
                remaining_low_usd=None if monthly_usd is None else monthly_usd * one.remaining_low,
                remaining_high_usd=None if monthly_usd is None else monthly_usd * one.remaining_high,
            )
            for one in advice
        ]
        return cls(steps=steps, **more)


class UnitCostAdvice(Advice):
    """The cost of a million tokens in parts. ``api_usd``: of a million tokens of the API compared with."""

    hardware_usd_per_million_tokens: Usd
    power_usd_per_million_tokens: Usd
    rent_usd_per_million_tokens: Usd
    usd_per_million_tokens: Usd
    million_tokens_per_year: Figure
    usd_per_hour: Usd
    usd_per_prediction: Usd | None
    api_usd: Usd | None
    break_even_utilisation: Figure | None
    rules_of_thumb: list[RuleCheck]


class RulesAdvice(Advice):
    """Quoted rules of thumb. ``holds``: null where no price is known to judge it by."""

    rules_of_thumb: list[QuotedRule]
