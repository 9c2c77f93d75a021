"""A backtest of reservation rules as tables and charts: each series, and the mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results.backtests import ReserveBacktest
from broker.backtest.reserve.reserve import OPTIMUM, POLICIES
from broker.cli.render.charts.chart import Bars, Chart, Line
from broker.cli.render.tables import Column, fitted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


_NOTE = "Costs are in on-demand unit-hours; 1 is the optimum, which knows the demand in advance."


def tables(console: Console, found: ReserveBacktest) -> Iterator[RenderableType]:
    """Cost over optimum of each rule on each series, the mean over the series, and the assumptions."""
    for ratio in dict.fromkeys(cell.ratio for cell in found.cells):
        term = f"reserved at {ratio:g} of on-demand for {found.term_s // 3600} h"
        yield Text(f"Cost over optimum · {term} · end {found.end}", style="bold")
        yield from (*_table(console, found, ratio), "")
    yield from (Text(note, style="dim") for note in (_NOTE, *found.notes))


def _table(console: Console, found: ReserveBacktest, ratio: float) -> list[RenderableType]:
    by = {(cell.series, cell.policy): cell for cell in found.cells if cell.ratio == ratio}
    policies = [policy for policy in dict.fromkeys(policy for _, policy in by) if policy != OPTIMUM]
    # On a narrow terminal the rules that matter least for the decision are hidden first.
    ranks = {policy: 0 if policy == "gpubroker" else 1 + POLICIES.index(policy) for policy in policies}
    columns = [
        Column("series", folds=True),
        *(Column(policy, ranks[policy], "right") for policy in policies),
        Column("optimum's cost", 9, "right"),
    ]
    optimum = {series: cell.optimum_cost for (series, _), cell in by.items()}
    rows: list[list[str | Text]] = [
        [series, *_overs([by[series, policy].cost_over_optimum for policy in policies]), f"{cost:,.0f}"]
        for series, cost in optimum.items()
    ]
    if len(rows) > 1:
        means = {mean.policy: mean.mean_cost_over_optimum for mean in found.means if mean.ratio == ratio}
        rows.append([Text("mean", style="bold"), *_overs([means.get(policy) for policy in policies]), ""])
    return fitted(console, columns, rows)


def _overs(values: list[float | None]) -> list[Text]:
    """The cells of a row; the least in bold."""
    least = min((value for value in values if value is not None), default=None)
    return [
        Text("–") if value is None else Text(f"{value:.3f}", style="bold" if value == least else "") for value in values
    ]


def charts(found: ReserveBacktest) -> list[Chart]:
    """The mean of each rule over all series; for a single series also its demand and what the rules held."""
    means = {(mean.ratio, mean.policy): mean.mean_cost_over_optimum for mean in found.means if mean.policy != OPTIMUM}
    labels = list(dict.fromkeys(policy for _, policy in means))
    bars = [
        Bars(f"reserved at {ratio:g} of on-demand", labels, [_above(means.get((ratio, label))) for label in labels])
        for ratio in dict.fromkeys(ratio for ratio, _ in means)
    ]
    what = found.series[0].series if len(found.series) == 1 else f"{len(found.series)} series"
    title = f"{what}: cost of reserving for {found.term_s // 3600} h"
    shown = [Chart(title, "rule", "% above the optimum's cost", bars=bars)]
    return [*shown, _stock(found)] if len(found.series) == 1 else shown


def _above(over: float | None) -> float | None:
    return None if over is None else round(100 * (over - 1), 1)


def _stock(found: ReserveBacktest) -> Chart:
    (series,), first = found.series, found.cells[0].ratio
    demand, warm_up = series.demand or (), series.warmup_s // 3600
    hours = list(range(warm_up, warm_up + len(demand)))
    lines = [Line("demand", hours, demand)]
    for cell in found.cells:
        if cell.ratio == first and cell.policy in ("gpubroker", OPTIMUM) and cell.held is not None:
            lines.append(Line(f"held by {cell.policy}", hours, cell.held, step=True))
    title = f"{series.series}: demand, and units held reserved at {first:g} of on-demand"
    return Chart(title, "hour of the series", "units", lines=lines)
