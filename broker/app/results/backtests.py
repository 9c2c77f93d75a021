"""Backtests of strategies, on recorded prices and demand, as results. Ratios have six decimals; amounts are decimal
strings in USD.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Literal, Self

from pydantic import Field

from broker.app.market.strategy_backtest import JobBacktest
from broker.app.results.values import Moment, Result, SixDecimals, is_none
from broker.backtest.placement.report import PlacementCell, PlacementReport, pooled
from broker.backtest.reserve.reserve_report import Mean, ReserveCell, ReserveReport


class ReplayedWindow(Result):
    """One replay. ``start``: the tick of the trace; ``cost`` and ``optimum``: of one machine; ``gang_cost``: of all
    that the job needs at once; ``finish_s``: null if the deadline was missed."""

    start: int
    cost: str
    optimum: str
    gang_cost: str
    finish_s: float | None
    missed: bool


class PlacementCellResult(Result):
    """One policy on one pool at one deadline and changeover. ``ratio_mean``: mean cost over mean optimum;
    ``ratio_p95``: 95th percentile of the windows' ratios; ``missed``: windows that ended late. ``together``: how many
    pools the job could choose between. ``per_window``: only where asked for."""

    family: str
    pool: str
    deadline_s: float | int
    changeover_s: float | int
    policy: str
    ratio_mean: SixDecimals
    ratio_p95: SixDecimals
    missed: int
    on_demand_share: SixDecimals | None
    interruptions: SixDecimals | None
    windows: int
    together: int
    per_window: list[ReplayedWindow] | None = Field(default=None, exclude_if=is_none)

    @classmethod
    def of(cls, cell: PlacementCell, *, per_window: bool = False, gang: int = 1) -> Self:
        return cls.from_parts(
            cell,
            deadline_s=_whole(cell.deadline_s),
            changeover_s=_whole(cell.changeover_s),
            windows=len(cell.windows),
            per_window=[
                ReplayedWindow(
                    start=window.start,
                    cost=f"{window.cost / gang:.6f}",
                    optimum=f"{window.optimum / gang:.6f}",
                    gang_cost=f"{window.cost:.6f}",
                    finish_s=window.outcome.finish if window.outcome else None,
                    missed=window.outcome.missed if window.outcome else False,
                )
                for window in cell.windows
            ]
            if per_window
            else None,
        )


class PolicyTotal(Result):
    """One policy in all cells together. ``mean_cost``: USD of a window, all machines; ``ratio_worst``: the ratio of its
    worst cell; the rest as in a cell."""

    policy: str
    mean_cost: str
    ratio_mean: SixDecimals
    ratio_worst: SixDecimals
    ratio_p95: SixDecimals
    missed: int
    on_demand_share: SixDecimals | None
    interruptions: SixDecimals | None

    @classmethod
    def of(cls, cells: Sequence[PlacementCell]) -> Self:
        whole = pooled(cells)
        return cls.from_parts(
            whole,
            mean_cost=f"{fmean(window.cost for window in whole.windows):.6f}",
            ratio_worst=max(cell.ratio_mean for cell in cells),
        )


class PolicyCosts(Result):
    """What one policy would have cost, all machines."""

    mean: str
    least: str
    most: str


class BacktestedJob(Result):
    """The job of a backtest on recorded prices. ``as_of``: the full hour at which the record ends; windows start
    between ``since`` and ``until``; ``on_demand_pool``: on which waiting ends."""

    name: str
    as_of: Moment
    since: Moment
    until: Moment
    on_demand_pool: str
    costs: dict[str, PolicyCosts]

    @classmethod
    def of(cls, found: JobBacktest) -> Self:
        costs = {
            cell.policy: PolicyCosts(mean=f"{fmean(costs):.2f}", least=f"{min(costs):.2f}", most=f"{max(costs):.2f}")
            for cell in found.report.cells
            if (costs := [window.cost for window in cell.windows])
        }
        return cls.from_parts(found, name=found.job.name, on_demand_pool=found.on_demand.offer.pool, costs=costs)


class PlacementBacktest(Result):
    """Every cell, the pools of each family together, all pools together (``everywhere``, with an empty family), all
    cells of each policy together, and caveats. ``gang``: the machines of a job; ``job``: only of a backtest of a job.
    """

    job: BacktestedJob | None = Field(default=None, exclude_if=is_none)
    work_s: float | int
    seed: int
    gang: int
    cells: list[PlacementCellResult]
    families: list[PlacementCellResult]
    everywhere: list[PlacementCellResult]
    totals: list[PolicyTotal]
    notes: list[str]

    @classmethod
    def of(cls, report: PlacementReport, job: JobBacktest | None = None, *, per_window: bool = False) -> Self:
        return cls.from_parts(
            report,
            job=job,
            work_s=_whole(report.work_s),
            cells=[PlacementCellResult.of(cell, per_window=per_window, gang=report.gang) for cell in report.cells],
            families=report.families(),
            everywhere=report.everywhere(),
            totals=report.policies(),
        )


class ReserveCellResult(Result):
    """One rule on one series at one ratio. Costs in on-demand unit-hours; ``units_bought`` and ``most_held``: null for
    a mean over several runs. ``held``: units reserved in each hour after the warm-up, if a chart is asked for."""

    series: str
    ratio: float
    policy: str
    cost: SixDecimals
    optimum_cost: SixDecimals
    cost_over_optimum: SixDecimals | None
    reserved_cost: SixDecimals
    on_demand_cost: SixDecimals
    idle_unit_hours: SixDecimals
    units_bought: int | None
    most_held: int | None
    held: list[int] | None = Field(default=None, exclude_if=is_none)

    @classmethod
    def of(cls, cell: ReserveCell, *, hourly: bool = False) -> Self:
        return cls.from_parts(
            cell,
            optimum_cost=cell.optimum,
            reserved_cost=cell.reserved,
            on_demand_cost=cell.on_demand,
            idle_unit_hours=cell.idle,
            units_bought=None if cell.outcome is None else sum(units for _, units in cell.outcome.purchases),
            most_held=None if cell.outcome is None else max(cell.outcome.held),
            held=list(cell.outcome.held) if hourly and cell.outcome is not None else None,
        )


class ReserveMeanResult(Result):
    """One rule at one ratio over all series."""

    ratio: float
    policy: str
    series: int
    mean_cost_over_optimum: SixDecimals
    worst_cost_over_optimum: SixDecimals

    @classmethod
    def of(cls, mean: Mean) -> Self:
        return cls.from_parts(mean, mean_cost_over_optimum=mean.mean, worst_cost_over_optimum=mean.worst)


class DemandSeries(Result):
    """A series of demand after its warm-up, in units. ``demand``: of each hour, if a chart is asked for."""

    series: str
    file: str
    hours: int
    warmup_s: int
    mean: SixDecimals
    peak: int
    notes: list[str]
    demand: list[int] | None = Field(default=None, exclude_if=is_none)


class ReserveBacktest(Result):
    """Every cell. ``end``: whether the rules know where the series end. Costs in on-demand unit-hours: multiply by the
    on-demand price of a unit for money."""

    term_s: int
    end: Literal["known", "unknown"]
    unit: str
    cells: list[ReserveCellResult]
    means: list[ReserveMeanResult]
    series: list[DemandSeries]
    notes: list[str]

    @classmethod
    def of(cls, report: ReserveReport, *, hourly: bool = False) -> Self:
        return cls.from_parts(
            report,
            term_s=report.term * 3600,
            end="known" if report.end_known else "unknown",
            unit="on-demand unit-hours",
            cells=[ReserveCellResult.of(cell, hourly=hourly) for cell in report.cells],
            means=report.means(),
            series=[
                DemandSeries(
                    series=demand.name,
                    file=str(demand.where),
                    hours=len(demand.hours),
                    warmup_s=warm_up * 3600,
                    mean=fmean(demand.hours[warm_up:]),
                    peak=max(demand.hours[warm_up:]),
                    notes=list(demand.notes),
                    demand=list(demand.hours[warm_up:]) if hourly else None,
                )
                for demand, warm_up in zip(report.series, report.warm_ups, strict=True)
            ],
        )


def _whole(seconds: float) -> float | int:
    return int(seconds) if seconds == int(seconds) else seconds
