"""Rules of thumb on the source of capacity, shown beside the arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.units import not_negative, positive, whole


@dataclass(frozen=True, slots=True)
class SourcingNeed:
    """The need: hours per day in use, months, GPUs at once, and special conditions."""

    hours_per_day: float
    months: float
    gpus: int = 1
    high_memory: bool = False
    bursty: bool = False
    steady_baseline: bool = False
    sensitive: bool = False
    regional_spread: bool = False

    def __post_init__(self) -> None:
        not_negative("hours per day", self.hours_per_day, most=24)
        positive("months", self.months, most=600)
        whole("gpus", self.gpus)


@dataclass(frozen=True, slots=True)
class Opinion:
    """A rule that applies to this situation, and what it ``says``: ``rent``, ``buy``, ``hybrid``, ``on_premises`` or
    ``multi_cloud``.
    """

    rule: str
    says: str


def opinions(situation: SourcingNeed, rules: Assumptions = DEFAULTS) -> tuple[Opinion, ...]:
    """Every rule whose condition is met. They may contradict each other: the arithmetic decides."""
    s = situation
    low, high, months = rules.rent_below_hours_per_day, rules.buy_above_hours_per_day, rules.buy_for_months
    single = s.gpus == 1 and not s.high_memory
    table = (
        (s.hours_per_day < low, f"under {low:g} h/day", "rent"),
        (s.bursty and not s.steady_baseline, "bursty use", "rent"),
        (
            single and low <= s.hours_per_day <= high and s.months >= months,
            f"{low:g}-{high:g} h/day on single cards for {months:g} months or more",
            "buy",
        ),
        (s.hours_per_day > high and s.months >= 24, f"more than {high:g} h/day for years", "buy"),
        (not single, "several GPUs or much memory", "rent"),
        (s.bursty and s.steady_baseline, "a steady baseline plus bursts", "hybrid"),
        (
            s.months >= 36 and s.hours_per_day / 24 > rules.buy_above_utilization,
            f"sustained utilisation above {rules.buy_above_utilization:.0%} over three years",
            "buy",
        ),
        (s.sensitive, "sensitive data", "on_premises"),
        (s.regional_spread, "users or prices spread over regions", "multi_cloud"),
    )
    return tuple(Opinion(rule, says) for holds, rule, says in table if holds)
