"""The result of a backtest of reserve rules.

Costs are in on-demand unit-hours: multiply by the on-demand price of a unit for money.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.backtest.reserve.demand import Demand
from broker.economics.reserve.replay import PurchaseOutcome


@dataclass(frozen=True, slots=True)
class ReserveCell:
    """One rule on one series at one ratio. ``reserved`` and ``on_demand`` are the parts of the cost; ``idle``:
    reserved unit-hours that nothing used. ``outcome``: purchases and stock; None for a mean over several runs."""

    series: str
    ratio: float
    policy: str
    reserved: float
    on_demand: float
    idle: float
    optimum: float
    outcome: PurchaseOutcome | None = None

    @property
    def cost(self) -> float:
        return self.reserved + self.on_demand

    @property
    def cost_over_optimum(self) -> float | None:
        """None where the optimum costs nothing and the rule does not."""
        if self.optimum:
            return self.cost / self.optimum
        return None if self.cost else 1.0


@dataclass(frozen=True, slots=True)
class Mean:
    """One rule at one ratio over all series that cost something: mean and worst of cost over optimum."""

    ratio: float
    policy: str
    series: int
    mean: float
    worst: float


@dataclass(frozen=True, slots=True)
class ReserveReport:
    """Every cell, and how it was measured. ``term`` and ``warm_ups`` (one a series) in hours."""

    term: int
    end_known: bool
    series: tuple[Demand, ...]
    warm_ups: tuple[int, ...]
    cells: tuple[ReserveCell, ...]
    notes: tuple[str, ...] = ()

    def means(self) -> tuple[Mean, ...]:
        """In the order of the cells."""
        groups: dict[tuple[float, str], list[float]] = {}
        for cell in self.cells:
            over = cell.cost_over_optimum
            if over is not None:
                groups.setdefault((cell.ratio, cell.policy), []).append(over)
        return tuple(
            Mean(ratio, policy, len(found), sum(found) / len(found), max(found))
            for (ratio, policy), found in groups.items()
        )
