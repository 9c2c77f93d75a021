"""A backtest of reservation rules as tables and charts: each series, and the mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from broker.backtest.reserve.reserve import OPTIMUM, POLICIES
from broker.backtest.reserve.reserve_report import ReserveCell, ReserveReport
from broker.cli.render.charts.chart import Bars, Chart, Line
from broker.cli.render.tables import Column, fitted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


_NOTE = "Costs are in on-demand unit-hours; 1 is the optimum, which knows the demand in advance."


def tables(console: Console, report: ReserveReport) -> list[RenderableType]:
    """Cost over optimum of each rule on each series, the mean over the series, and the assumptions."""
    shown: list[RenderableType] = []
    ratios = dict.fromkeys(cell.ratio for cell in report.cells)
    for ratio in ratios:
        cells = [cell for cell in report.cells if cell.ratio == ratio]
        end = "known" if report.end_known else "unknown"
        head = f"Cost over optimum · reserved at {ratio:g} of on-demand for {report.term} h · end {end}"
        shown += [Text(head, style="bold"), *_table(console, report, cells, ratio), ""]
    return [*shown, Text(_NOTE, style="dim"), *(Text(note, style="dim") for note in report.notes)]


def _table(console: Console, report: ReserveReport, cells: list[ReserveCell], ratio: float) -> list[RenderableType]:
    policies = list(dict.fromkeys(cell.policy for cell in cells))
    by = {(cell.series, cell.policy): cell for cell in cells}
    # On a narrow terminal the rules that matter least for the decision are hidden first.
    ranks = {policy: 0 if policy == "gpubroker" else 1 + POLICIES.index(policy) for policy in policies}
    columns = [
        Column("series", folds=True),
        *(Column(policy, ranks[policy], "right") for policy in policies if policy != OPTIMUM),
        Column("optimum's cost", 9, "right"),
    ]
    rows: list[list[str | Text]] = []
    for series in dict.fromkeys(cell.series for cell in cells):
        of_series = [by[series, policy] for policy in policies]
        overs = {cell.policy: cell.cost_over_optimum for cell in of_series}
        least = min((over for policy, over in overs.items() if over is not None and policy != OPTIMUM), default=None)
        ratios = [_over(overs[policy], least) for policy in policies if policy != OPTIMUM]
        rows.append([series, *ratios, f"{of_series[0].optimum:,.0f}"])
    if len(rows) > 1:
        means = {mean.policy: mean.mean for mean in report.means() if mean.ratio == ratio}
        least = min((mean for policy, mean in means.items() if policy != OPTIMUM), default=None)
        rows.append([Text("mean", style="bold"), *(_over(means.get(p), least) for p in policies if p != OPTIMUM), ""])
    return fitted(console, columns, rows)


def _over(value: float | None, least: float | None) -> Text:
    return Text("–" if value is None else f"{value:.3f}", style="bold" if value is not None and value == least else "")


def charts(report: ReserveReport) -> list[Chart]:
    """The mean of each rule over all series; for a single series also its demand and what the rules held."""
    means = [mean for mean in report.means() if mean.policy != OPTIMUM]
    labels = list(dict.fromkeys(mean.policy for mean in means))
    found = {(mean.ratio, mean.policy): mean.mean for mean in means}
    bars = [
        Bars(f"reserved at {ratio:g} of on-demand", labels, [_above(found.get((ratio, label))) for label in labels])
        for ratio in dict.fromkeys(mean.ratio for mean in means)
    ]
    shown = [Chart(_title(report), "rule", "% above the optimum's cost", bars=bars)]
    if len(report.series) == 1:
        shown.append(_stock(report))
    return shown


def _above(over: float | None) -> float | None:
    return None if over is None else round(100 * (over - 1), 1)


def _title(report: ReserveReport) -> str:
    what = report.series[0].name if len(report.series) == 1 else f"{len(report.series)} series"
    return f"{what}: cost of reserving for {report.term} h"


def _stock(report: ReserveReport) -> Chart:
    demand, warm_up = report.series[0], report.warm_ups[0]
    counted = demand.hours[warm_up:]
    hours = list(range(warm_up, len(demand.hours)))
    first = report.cells[0].ratio
    lines = [Line("demand", hours, counted)]
    for cell in report.cells:
        if cell.ratio == first and cell.policy in ("gpubroker", OPTIMUM) and cell.outcome is not None:
            lines.append(Line(f"held by {cell.policy}", hours, cell.outcome.held, step=True))
    title = f"{demand.name}: demand, and units held reserved at {first:g} of on-demand"
    return Chart(title, "hour of the series", "units", lines=lines)
