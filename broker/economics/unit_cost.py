"""Unit costs: of a million tokens, owned or rented, against an API's price; of a finished model; of an owned GPU-hour.

All amounts USD, energy kWh, a year is 8,760 hours.
"""

import math
from dataclasses import dataclass, replace

from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.energy import energy_usd_per_hour
from broker.economics.figures import (
    API_BREAK_EVEN,
    CLUSTER_USD_PER_GPU_HOUR,
    WITHIN,
    Figure,
    RuleCheck,
    Share,
    Usd,
    number_text,
    usd_text,
)
from broker.economics.units import HOURS_PER_YEAR, MAX_USD, fraction, positive

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class TokenCost:
    """The cost of a million tokens by part, and the million tokens generated per year. ``break_even_utilization``: at
    which the machine costs as much as the API; above 1 the API is cheaper even than a machine that is always busy."""

    usd_per_million_tokens: Usd
    hardware_usd: Usd
    power_usd: Usd
    rent_usd: Usd
    million_tokens_per_year: Figure
    usd_per_hour: Usd
    usd_per_prediction: Usd | None
    break_even_utilization: Share | None
    rules_of_thumb: tuple[RuleCheck, ...]


def token_cost(tokens_per_second: float, assumptions: Assumptions = DEFAULTS) -> TokenCost:
    """The cost on a machine that generates that much while it is busy.

    Owned (``purchase_usd``): (hardware ÷ life + watts × PUE × price) ÷ (tokens/s × utilization), with the power drawn
    around the clock. Rented (``rent_usd_per_hour``): hourly rent ÷ (tokens/s × 3600 × utilization).
    """
    case = assumptions
    speed = positive("tokens per second", tokens_per_second, "tokens/s")
    millions = speed * 3600 * case.utilization / _MILLION
    hardware = power = rent = 0.0
    if case.purchase_usd is not None:
        hardware = case.purchase_usd / (case.years * HOURS_PER_YEAR)
        power = energy_usd_per_hour(case.watts or 0.0, case.kwh_usd, case.pue)
    else:
        rent = positive("rent", case.rent_usd_per_hour or 0.0, "USD per hour", most=MAX_USD)
    hourly = hardware + power + rent
    per_million, tokens = hourly / millions, case.tokens_per_prediction
    return TokenCost(
        usd_per_million_tokens=per_million,
        hardware_usd=hardware / millions,
        power_usd=power / millions,
        rent_usd=rent / millions,
        million_tokens_per_year=millions * HOURS_PER_YEAR,
        usd_per_hour=hourly,
        usd_per_prediction=None if tokens is None else per_million * tokens / _MILLION,
        break_even_utilization=None if case.api_usd is None else break_even_utilization(hourly, speed, case.api_usd),
        rules_of_thumb=()
        if case.api_usd is None
        else tuple(check_quoted_utilization(*claim, hourly, speed, case.api_usd) for claim in API_BREAK_EVEN),
    )


def break_even_utilization(usd_per_hour: float, tokens_per_second: float, api_usd_per_million_tokens: float) -> float:
    """The utilization at which an hour of an own machine costs as much as its tokens at the API's price."""
    return usd_per_hour / (api_usd_per_million_tokens * tokens_per_second * 3600 / _MILLION)


def check_quoted_utilization(
    name: str, quoted: float, usd_per_hour: float, tokens_per_second: float, api_usd_per_million_tokens: float
) -> RuleCheck:
    """Compares a claim such as "a 7B model needs about 50 % utilization to beat an API" with the arithmetic; it holds
    near the quoted figure, either way."""
    computed = break_even_utilization(usd_per_hour, tokens_per_second, api_usd_per_million_tokens)
    reached = "never reached" if computed > 1 else f"{computed:.0%}"
    return RuleCheck(
        rule=f"{name} needs about {quoted:.0%} utilization to beat the API",
        says=f"break-even is {reached} at ${usd_per_hour:.2f}/h, {number_text(tokens_per_second)} tokens/s and "
        f"${api_usd_per_million_tokens:g} per million tokens",
        holds=abs(computed - quoted) <= WITHIN * quoted,
    )


@dataclass(frozen=True, slots=True)
class RunCost:
    """The cost of a finished model by part. ``quality_point``: what a point is, of the metric that was given."""

    total_usd: Usd
    compute_usd: Usd
    failed_usd: Usd
    experiments_usd: Usd
    preprocessing_usd: Usd
    storage_usd: Usd
    usd_per_quality_point: Usd | None
    quality_point: Figure | None


def training_run(gpu_hours: float, usd_per_gpu_hour: float, assumptions: Assumptions = DEFAULTS) -> RunCost:
    """The whole cost of a training run that ends well.

    ``failed_share``: share of all GPU-hours that failed or was redone, so 0.2 adds a quarter. ``experiments``:
    exploratory runs before it, in units of the final run. Storage is for checkpoints and artifacts.
    """
    case = assumptions
    compute = positive("work", gpu_hours, "GPU-hours") * positive("price", usd_per_gpu_hour, "USD per GPU-hour")
    failed = compute * case.failed_share / (1 - case.failed_share)
    experiments, preprocessing = compute * case.experiments, compute * case.preprocessing_share
    storage = case.storage_gb * case.storage_usd_per_gb_month * case.storage_months
    total = compute + failed + experiments + preprocessing + storage
    point = per_point = None
    if case.quality is not None:
        best = max(case.quality, case.baseline_quality)
        point = 0.01 if best <= 1 else 1.0  # a hundredth of an accuracy from 0 to 1; one of a percentage
        gained = positive("quality gained over the baseline", case.quality - case.baseline_quality)
        per_point = total / (gained / point)
    return RunCost(total, compute, failed, experiments, preprocessing, storage, per_point, point)


@dataclass(frozen=True, slots=True)
class ClusterCost:
    """The cost of an hour of an owned GPU in use, and of an hour of ownership by part."""

    usd_per_used_gpu_hour: Usd
    usd_per_gpu_hour: Usd
    hardware_usd: Usd
    facility_usd: Usd
    energy_usd: Usd
    staff_usd: Usd
    rules_of_thumb: tuple[RuleCheck, ...]


def cluster_cost(server_usd: float, assumptions: Assumptions = DEFAULTS) -> ClusterCost:
    """True cost of a cluster of ``gpus`` whose servers cost ``server_usd`` in all.

    Servers and facilities are written off evenly to the resale value, with interest at the discount rate (the annuity
    of what they cost today). ``watts``: of the whole cluster. Staff is per GPU-hour of ownership. What is not stated is
    taken from `with_middle_overheads`.
    """
    case = with_middle_overheads(assumptions)
    count = case.gpus or case.gpus_per_node
    server = positive("server price", server_usd, "USD", most=MAX_USD)
    hours = HOURS_PER_YEAR * count
    hardware = annuity(server, server * case.resale_share, case.years, case.discount_rate) / hours
    facility = annuity(case.facility_usd or 0.0, 0, case.years, case.discount_rate) / hours
    energy = energy_usd_per_hour(case.watts or 0.0, case.kwh_usd, case.pue) / count
    staff = case.staff_usd_per_gpu_hour or 0.0
    total = hardware + facility + energy + staff
    used = total / fraction("utilization", case.utilization)
    return ClusterCost(used, total, hardware, facility, energy, staff, (check_quoted_cost(used, total),))


def with_middle_overheads(assumptions: Assumptions) -> Assumptions:
    """The assumptions of a cluster, with the middle of often quoted ranges where nothing is stated. For 8 GPUs: power
    distribution $10,000-50,000 and cooling $15,000-100,000, so $87,500; staff $2-7 per GPU-hour; 10,200 W, the maximum
    of a DGX H100 by its datasheet. Facilities and power are in proportion to the GPUs."""
    gpus = assumptions.gpus or assumptions.gpus_per_node
    facility, staff, watts = assumptions.facility_usd, assumptions.staff_usd_per_gpu_hour, assumptions.watts
    return replace(
        assumptions,
        facility_usd=87_500 / 8 * gpus if facility is None else facility,
        staff_usd_per_gpu_hour=4.5 if staff is None else staff,
        watts=10_200 / 8 * gpus if watts is None else watts,
    )


def annuity(price: float, resale: float, years: float, rate: float) -> float:
    """The even yearly payment that is worth ``price`` today less ``resale`` at the end, at a yearly ``rate``."""
    if rate < 1e-12:
        return (price - resale) / years
    shrinkage = -math.expm1(-years * math.log1p(rate))  # 1 - (1 + rate)^-years, exact for small rates too
    return (price - resale * (1 - shrinkage)) * rate / shrinkage


def check_quoted_cost(used: float, owned: float) -> RuleCheck:
    """Compares the often quoted $8-15 per GPU-hour with computed USD per used hour and per hour of ownership."""
    cheap, expensive = CLUSTER_USD_PER_GPU_HOUR
    holds = cheap <= used <= expensive
    says = f"{usd_text(used)} per used GPU-hour"
    if not holds:
        says += (
            f"; ${cheap:g} needs a utilization of {owned / cheap:.0%}, ${expensive:g} one of {owned / expensive:.0%}"
        )
    return RuleCheck(rule=f"an owned GPU-hour costs ${cheap:g}-{expensive:g}", says=says, holds=holds)
