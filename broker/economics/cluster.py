"""True cost of an hour of an owned GPU, with building, staff and capital (USD)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.claims import CLUSTER_USD_PER_GPU_HOUR, RuleCheck
from broker.economics.unit_cost import energy_usd_per_hour
from broker.economics.units import HOURS_PER_YEAR, fraction, not_negative, positive, whole


@dataclass(frozen=True, slots=True)
class ClusterCost:
    """USD per GPU-hour of ownership by part, their sum, and the sum per used hour."""

    hardware_usd_per_gpu_hour: float
    facility_usd_per_gpu_hour: float
    energy_usd_per_gpu_hour: float
    staff_usd_per_gpu_hour: float
    usd_per_gpu_hour: float
    usd_per_used_gpu_hour: float

    def utilisation_at(self, usd_per_gpu_hour: float) -> float:
        """The utilisation at which a used GPU-hour costs that much; above 1: even a GPU in constant use costs more."""
        return self.usd_per_gpu_hour / positive("price", usd_per_gpu_hour, "USD per GPU-hour")


def cluster_cost(
    *,
    server_usd: float,
    gpus: int,
    years: float,
    power_distribution_usd: float = 0,
    cooling_usd: float = 0,
    networking_usd: float = 0,
    watts: float = 0,
    kwh_usd: float = 0,
    pue: float = 1.0,
    staff_usd_per_gpu_hour: float = 0,
    resale_usd: float = 0,
    discount_rate: float = 0,
    utilisation: float = 1.0,
) -> ClusterCost:
    """True cost of a cluster of ``gpus`` held for ``years``.

    Server and building are written off evenly to the resale value, with interest at ``discount_rate`` a year (the
    annuity of what they cost today). ``watts``: of the whole cluster. Staff is per GPU-hour of ownership.
    """
    count = whole("gpus", gpus)
    hours = HOURS_PER_YEAR * count
    server = positive("server price", server_usd, "USD")
    resale = not_negative("resale value", resale_usd, "USD", most=server)
    building = sum(
        not_negative(name, value, "USD")
        for name, value in (
            ("power distribution", power_distribution_usd),
            ("cooling", cooling_usd),
            ("networking", networking_usd),
        )
    )
    hardware = annuity(server, resale, years, discount_rate) / hours
    facility = annuity(building, 0, years, discount_rate) / hours
    energy = energy_usd_per_hour(watts, kwh_usd, pue) / count
    staff = not_negative("staff", staff_usd_per_gpu_hour, "USD per GPU-hour")
    total = hardware + facility + energy + staff
    return ClusterCost(hardware, facility, energy, staff, total, total / fraction("utilisation", utilisation))


def annuity(price: float, resale: float, years: float, rate: float) -> float:
    """The even yearly payment that is worth ``price`` today less ``resale`` at the end, at a yearly ``rate``."""
    positive("years", years, most=50)
    if not_negative("discount rate", rate, most=1) < 1e-12:
        return (price - resale) / years
    shrinkage = -math.expm1(-years * math.log1p(rate))  # 1 - (1 + rate)^-years, exact for small rates too
    return (price - resale * (1 - shrinkage)) * rate / shrinkage


def check_quoted_range(low: ClusterCost, high: ClusterCost, rules: Assumptions = DEFAULTS) -> RuleCheck:
    """Compares the often quoted $8-15 per GPU-hour with the low and high ends of the inputs.

    The rule holds when both ends of the computed range, per used hour, lie within the quoted one.
    """
    cheap, dear = CLUSTER_USD_PER_GPU_HOUR
    holds = cheap <= low.usd_per_used_gpu_hour and high.usd_per_used_gpu_hour <= dear
    says = f"${low.usd_per_used_gpu_hour:.1f}-{high.usd_per_used_gpu_hour:.1f} per used GPU-hour"
    if not holds:
        says += (
            f"; ${cheap:g} needs a utilisation of {low.utilisation_at(cheap):.0%} at the low end, ${dear:g} "
            f"one of {high.utilisation_at(dear):.0%} at the high end"
        )
    return RuleCheck(rule=f"an owned GPU-hour costs ${cheap:g}-{dear:g}", says=says, holds=holds)
