"""Unit costs: per million tokens, prediction, run and point of quality; owned and rented; against an API's price.

All amounts USD, energy kWh, a year is 8,760 hours.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.claims import WITHIN, RuleCheck
from broker.economics.estimates import digits
from broker.economics.units import HOURS_PER_YEAR, MOST_USD, fraction, not_negative, overhead, positive, share

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class UnitCost:
    """USD per million tokens by part, and the million tokens generated per year.

    For rented capacity, ``rent_usd_per_million_tokens`` has the rent and the other two parts are 0.
    """

    hardware_usd_per_million_tokens: float
    power_usd_per_million_tokens: float
    rent_usd_per_million_tokens: float
    usd_per_million_tokens: float
    million_tokens_per_year: float
    usd_per_hour: float


def owned(
    *,
    hardware_usd: float,
    years: float,
    watts: float,
    kwh_usd: float,
    tokens_per_second: float,
    utilisation: float,
    pue: float = 1.0,
) -> UnitCost:
    """Owned hardware: (hardware ÷ life + watts × PUE × price) ÷ (tokens/s × utilisation).

    Power is drawn around the clock, whatever the utilisation. ``years``: the life it is written off over.
    """
    positive("hardware price", hardware_usd, "USD", most=MOST_USD)
    positive("years", years, most=50)
    hardware = hardware_usd / (years * HOURS_PER_YEAR)
    power = energy_usd_per_hour(watts, kwh_usd, pue)
    millions = _millions_per_hour(tokens_per_second, utilisation)
    return UnitCost(
        hardware_usd_per_million_tokens=hardware / millions,
        power_usd_per_million_tokens=power / millions,
        rent_usd_per_million_tokens=0.0,
        usd_per_million_tokens=(hardware + power) / millions,
        million_tokens_per_year=millions * HOURS_PER_YEAR,
        usd_per_hour=hardware + power,
    )


def rented(*, rent_usd_per_hour: float, tokens_per_second: float, utilisation: float) -> UnitCost:
    """Rented capacity: hourly rent ÷ (tokens/s × 3600 × utilisation)."""
    rent = positive("rent", rent_usd_per_hour, "USD per hour", most=MOST_USD)
    millions = _millions_per_hour(tokens_per_second, utilisation)
    return UnitCost(0.0, 0.0, rent / millions, rent / millions, millions * HOURS_PER_YEAR, rent)


def energy_usd_per_hour(watts: float, kwh_usd: float, pue: float = 1.0) -> float:
    """Cost of an hour of ``watts`` at the plug of the machine, with the building's overhead (PUE, 1 or more)."""
    not_negative("power", watts, "W", most=1e8)
    not_negative("electricity price", kwh_usd, "USD per kWh", most=100)
    return watts / 1000 * kwh_usd * overhead(pue)


def break_even_utilisation(usd_per_hour: float, tokens_per_second: float, api_usd_per_million_tokens: float) -> float:
    """The utilisation at which an hour of an own machine costs as much as its tokens at the API's price. Above 1 the
    API is cheaper even than a machine that is always busy."""
    cost = positive("cost per hour", usd_per_hour, "USD")
    price = positive("API price", api_usd_per_million_tokens, "USD per million tokens")
    return cost / (price * _millions_per_hour(tokens_per_second, 1.0))


def check_quoted_utilisation(
    name: str,
    quoted: float,
    usd_per_hour: float,
    tokens_per_second: float,
    api_usd_per_million_tokens: float,
    rules: Assumptions = DEFAULTS,
) -> RuleCheck:
    """Compares a claim such as "a 7B model needs about 50 % utilisation to beat an API" with the arithmetic; it holds
    within the rules' tolerance of the quoted figure, either way."""
    fraction("quoted utilisation", quoted)
    computed = break_even_utilisation(usd_per_hour, tokens_per_second, api_usd_per_million_tokens)
    holds = abs(computed - quoted) <= WITHIN * quoted
    reached = "never reached" if computed > 1 else f"{computed:.0%}"
    return RuleCheck(
        rule=f"{name} needs about {quoted:.0%} utilisation to beat the API",
        says=f"break-even is {reached} at ${usd_per_hour:.2f}/h, {digits(tokens_per_second)} tokens/s and "
        f"${api_usd_per_million_tokens:g} per million tokens",
        holds=holds,
    )


def per_prediction(usd_per_million_tokens: float, tokens: float) -> float:
    """USD for one prediction of ``tokens`` (input and output together, at one price)."""
    cost = not_negative("price", usd_per_million_tokens, "USD per million tokens")
    return cost * positive("tokens", tokens) / _MILLION


def per_quality_point(usd: float, quality: float, baseline: float = 0.0) -> float:
    """USD for each `quality_point` above the baseline. Raises InvalidInput when nothing was gained."""
    gained = positive("quality gained over the baseline", quality - baseline)
    return not_negative("cost", usd, "USD") / (gained / quality_point(quality, baseline))


def quality_point(quality: float, baseline: float = 0.0) -> float:
    """The size of a point: a hundredth of a metric from 0 to 1, such as accuracy; 1 of others, such as percentages."""
    return 0.01 if max(abs(quality), abs(baseline)) <= 1 else 1.0


@dataclass(frozen=True, slots=True)
class RunCost:
    """The cost of a finished model by part, USD."""

    compute_usd: float
    failed_usd: float
    experiments_usd: float
    preprocessing_usd: float
    storage_usd: float
    total_usd: float


def training_run(
    *,
    gpu_hours: float,
    usd_per_gpu_hour: float,
    failed_share: float = 0.0,
    experiments: float = 0.0,
    preprocessing_share: float | None = None,
    storage_gb: float = 0.0,
    storage_usd_per_gb_month: float = 0.0,
    storage_months: float = 0.0,
    rules: Assumptions = DEFAULTS,
) -> RunCost:
    """The whole cost of a training run that ends well.

    ``failed_share``: share of all GPU-hours that failed or was redone, so 0.2 adds a quarter. ``experiments``:
    exploratory runs before it, in units of the final run. ``preprocessing_share``: data preparation as a share of
    training (10-30 % is common). Storage is for checkpoints and artifacts.
    """
    compute = positive("work", gpu_hours, "GPU-hours") * positive("price", usd_per_gpu_hour, "USD per GPU-hour")
    lost = not_negative("failed share", failed_share, most=0.95)
    failed = compute * lost / (1 - lost)
    explored = compute * not_negative("experiments", experiments)
    prepared = compute * share(
        "preprocessing share", rules.preprocessing_share if preprocessing_share is None else preprocessing_share
    )
    stored = (
        not_negative("storage", storage_gb, "GB")
        * not_negative("storage price", storage_usd_per_gb_month, "USD per GB and month")
        * not_negative("storage time", storage_months, "months")
    )
    return RunCost(compute, failed, explored, prepared, stored, compute + failed + explored + prepared + stored)


def _millions_per_hour(tokens_per_second: float, utilisation: float) -> float:
    speed = positive("throughput", tokens_per_second, "tokens/s")
    return speed * 3600 * fraction("utilisation", utilisation) / _MILLION
