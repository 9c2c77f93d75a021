"""A backtest of placement as tables and as a chart: cost over optimum by family and by pool, and totals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results.backtests import BacktestedJob, PlacementBacktest, PlacementCellResult, PolicyTotal
from broker.backtest.placement.run import OMNISCIENT
from broker.cli.render.charts.chart import Bars, Chart
from broker.cli.render.formats import length, moment, percent, plural
from broker.cli.render.tables import Column, ValueColumn, fitted, listed

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_NOTE = "Mean cost over mean optimum; the optimum knows the whole window in advance. Bold: lowest of the row."
_MOST_ROWS = 60


def tables(console: Console, found: PlacementBacktest) -> Iterator[RenderableType]:
    """Cost over optimum of each policy by family and by pool, then totals: cost, missed deadlines, interruptions."""
    if found.job is not None:
        yield from _about_job(found.job, max((cell.windows for cell in found.cells), default=0))
    yield Text(f"Cost over optimum · {_what(found)}", style="bold")
    yield from _ratios(console, found.families)
    if len(found.cells) > len(found.families):
        rows = len(found.cells) // len(found.totals)
        if rows <= _MOST_ROWS:
            yield from ("", Text("By pool", style="bold"), *_ratios(console, found.cells))
        else:
            yield Text(f"{plural(rows, 'row')} by pool: use --json", style="dim")
    yield from ("", Text("Total", style="bold"), *_totals(console, found.totals), "")
    paid = f"Mean cost is for all {found.gang} machines." if found.gang > 1 else ""
    yield from (Text(note, style="dim") for note in (_NOTE, paid, *found.notes) if note)


def _what(found: PlacementBacktest) -> str:
    gang = f" on gangs of {found.gang}" if found.gang > 1 else ""
    return f"{_hours(found.work_s)} of work{gang}"


def _about_job(job: BacktestedJob, windows: int) -> Iterator[RenderableType]:
    """The cost of the job, one line per policy."""
    started = f"{job.name}, started at {plural(windows, 'full hour')} from {moment(job.since)} to {moment(job.until)}"
    yield Text(f"{started}, on records up to {moment(job.as_of)}", style="bold")
    for policy, costs in job.costs.items():
        mean, least, most = (f"${float(cost):,.2f}" for cost in (costs.mean, costs.least, costs.most))
        yield Text(f"  {policy}: {mean} on average, {least} to {most}")
    yield ""


def _ratios(console: Console, cells: Sequence[PlacementCellResult]) -> list[RenderableType]:
    compared = [policy for policy in dict.fromkeys(cell.policy for cell in cells) if policy != OMNISCIENT]
    rows: list[list[str | Text]] = []
    by: dict[tuple[str, str, float, float], dict[str, PlacementCellResult]] = {}
    for cell in cells:
        by.setdefault((cell.family, cell.pool, cell.deadline_s, cell.changeover_s), {})[cell.policy] = cell
    for (family, pool, deadline, changeover), of in by.items():
        ratios = {policy: of[policy].ratio_mean for policy in compared}
        least = min(ratios.values(), default=None)
        found = [Text(f"{ratio:.3f}", style="bold" if ratio == least else "") for ratio in ratios.values()]
        rows.append([family, pool, _hours(deadline), _hours(changeover), *found, str(next(iter(of.values())).windows)])
    # On a narrow terminal the policies that matter least for the decision are hidden first.
    ranks = {"gpubroker": 0, "uniform-progress": 0}
    columns = [
        Column("family", 8 if len({family for family, *_ in by}) == 1 else 1, folds=True),
        Column("pool", folds=True),
        Column("deadline", align="right"),
        Column("changeover", 7, "right"),
        *(Column(policy, ranks.get(policy, 2 + i), "right") for i, policy in enumerate(compared)),
        Column("windows", 9, "right"),
    ]
    return fitted(console, columns, rows)


def _totals(console: Console, totals: Sequence[PolicyTotal]) -> list[RenderableType]:
    columns: tuple[ValueColumn[PolicyTotal], ...] = (
        ValueColumn("policy", lambda of: of.policy),
        ValueColumn("mean cost", lambda of: f"${float(of.mean_cost):,.2f}", 2, "right"),
        ValueColumn("over optimum", lambda of: f"{of.ratio_mean:.3f}", 0, "right"),
        ValueColumn("worst cell", lambda of: f"{of.ratio_worst:.3f}", 4, "right"),
        ValueColumn("95th percentile", lambda of: f"{of.ratio_p95:.3f}", 3, "right"),
        ValueColumn("missed", lambda of: Text(str(of.missed), style="bold red" if of.missed else ""), 1, "right"),
        ValueColumn("on-demand", lambda of: _or_dash(of.on_demand_share, percent), 5, "right"),
        ValueColumn("interruptions", lambda of: _or_dash(of.interruptions, "{:.1f}".format), 6, "right"),
    )
    return listed(console, columns, totals)


def _or_dash(value: float | None, form: Callable[[float], str]) -> str:
    return "–" if value is None else form(value)


def charts(found: PlacementBacktest) -> list[Chart]:
    """How far each policy is above the optimum over all pools: one bar per deadline (and changeover)."""
    policies = [total.policy for total in found.totals if total.policy != OMNISCIENT]
    several = len({cell.changeover_s for cell in found.everywhere}) > 1
    bars = []
    for deadline, changeover in dict.fromkeys((cell.deadline_s, cell.changeover_s) for cell in found.everywhere):
        mine = [cell for cell in found.everywhere if (cell.deadline_s, cell.changeover_s) == (deadline, changeover)]
        above = {cell.policy: round(100 * (cell.ratio_mean - 1), 1) for cell in mine}
        label = f"deadline {_hours(deadline)}" + (f", changeover {_hours(changeover)}" if several else "")
        bars.append(Bars(label, policies, [above[policy] for policy in policies]))
    title = f"{_what(found)} on {_pools(found)}: cost of each policy"
    return [Chart(title, "policy", "% above the optimum's cost", bars=bars)]


def _pools(found: PlacementBacktest) -> str:
    sizes = {(cell.family, cell.pool): cell.together for cell in found.cells}
    if len(sizes) == sum(sizes.values()):
        return plural(len(sizes), "pool")
    together = f"{sum(sizes.values())} pools together"
    return together if len(sizes) == 1 else f"{together} in {plural(len(sizes), 'family', 'families')}"


def _hours(seconds: float) -> str:
    if seconds >= 3600 and seconds % 3600 == 0:
        return f"{seconds / 3600:g} h"
    return length(timedelta(seconds=seconds))
