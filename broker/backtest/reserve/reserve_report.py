"""The result of a backtest of reserve rules; `Report.as_dict` is the JSON document.

Costs are in on-demand unit-hours: multiply by the on-demand price of a unit for money.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.backtest.reserve.demand import Demand
from broker.economics.reserve.replay import Outcome


@dataclass(frozen=True, slots=True)
class Cell:
    """One rule on one series at one ratio. ``reserved`` and ``on_demand`` are the parts of the cost; ``idle``:
    reserved unit-hours that nothing used. ``outcome``: purchases and stock; None for a mean over several runs."""

    series: str
    ratio: float
    policy: str
    reserved: float
    on_demand: float
    idle: float
    optimum: float
    outcome: Outcome | None = None

    @property
    def cost(self) -> float:
        return self.reserved + self.on_demand

    @property
    def cost_over_optimum(self) -> float | None:
        """None where the optimum costs nothing and the rule does not."""
        if self.optimum:
            return self.cost / self.optimum
        return None if self.cost else 1.0

    def as_dict(self) -> dict[str, object]:
        over = self.cost_over_optimum
        return {
            "series": self.series,
            "ratio": self.ratio,
            "policy": self.policy,
            "cost": round(self.cost, 6),
            "cost_over_optimum": None if over is None else round(over, 6),
            "reserved_cost": round(self.reserved, 6),
            "on_demand_cost": round(self.on_demand, 6),
            "idle_unit_hours": round(self.idle, 6),
            "units_bought": None if self.outcome is None else sum(units for _, units in self.outcome.purchases),
            "most_held": None if self.outcome is None else max(self.outcome.held),
        }


@dataclass(frozen=True, slots=True)
class Mean:
    """One rule at one ratio over all series that cost something: mean and worst of cost over optimum."""

    ratio: float
    policy: str
    series: int
    mean: float
    worst: float

    def as_dict(self) -> dict[str, object]:
        return {
            "ratio": self.ratio,
            "policy": self.policy,
            "series": self.series,
            "mean_cost_over_optimum": round(self.mean, 6),
            "worst_cost_over_optimum": round(self.worst, 6),
        }


@dataclass(frozen=True, slots=True)
class Report:
    """Every cell, and how it was measured. ``term`` and ``warm_ups`` (one a series) in hours."""

    term: int
    end_known: bool
    series: tuple[Demand, ...]
    warm_ups: tuple[int, ...]
    cells: tuple[Cell, ...]
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

    def as_dict(self) -> dict[str, object]:
        return {
            "term_s": self.term * 3600,
            "end": "known" if self.end_known else "unknown",
            "unit": "on-demand unit-hours",
            "cells": [cell.as_dict() for cell in self.cells],
            "means": [mean.as_dict() for mean in self.means()],
            "series": [
                {
                    "series": demand.name,
                    "file": demand.where,
                    "hours": len(demand.hours),
                    "warmup_s": warm_up * 3600,
                    "mean": round(sum(demand.hours[warm_up:]) / len(demand.hours[warm_up:]), 6),
                    "peak": max(demand.hours[warm_up:]),
                    "notes": list(demand.notes),
                }
                for demand, warm_up in zip(self.series, self.warm_ups, strict=True)
            ],
            "notes": list(self.notes),
        }
