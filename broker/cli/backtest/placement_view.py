"""A backtest of placement as tables and as a chart: cost over optimum by family and by pool, and totals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from statistics import fmean
from typing import TYPE_CHECKING

from rich.text import Text

from broker.backtest.placement.report import PlacementCell, PlacementReport, pooled
from broker.backtest.placement.run import OMNISCIENT
from broker.cli.render.charts.chart import Bars, Chart
from broker.cli.render.formats import length, moment, percent, plural
from broker.cli.render.tables import Column, fitted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.market.strategy_backtest import JobBacktest

_NOTE = "Mean cost over mean optimum; the optimum knows the whole window in advance. Bold: lowest of the row."
_MOST_ROWS = 60


def tables(console: Console, report: PlacementReport) -> list[RenderableType]:
    """Cost over optimum of each policy by family and by pool, then totals: cost, missed deadlines, interruptions."""
    policies = list(dict.fromkeys(cell.policy for cell in report.cells))
    families = report.families()
    shown: list[RenderableType] = [
        Text(f"Cost over optimum · {_what(report)}", style="bold"),
        *_ratios(console, families, policies),
    ]
    if len(report.cells) > len(families):
        rows = len(report.cells) // len(policies)
        if rows <= _MOST_ROWS:
            shown += ["", Text("By pool", style="bold"), *_ratios(console, report.cells, policies)]
        else:
            shown.append(Text(f"{plural(rows, 'row')} by pool: use --json", style="dim"))
    shown += ["", Text("Total", style="bold"), *_totals(console, report.cells, policies), ""]
    paid = f"Mean cost is for all {report.gang} machines." if report.gang > 1 else ""
    return [*shown, *(Text(note, style="dim") for note in (_NOTE, paid, *report.notes) if note)]


def _what(report: PlacementReport) -> str:
    gang = f" on gangs of {report.gang}" if report.gang > 1 else ""
    return f"{_hours(report.work_s)} of work{gang}"


def about_job(about: JobBacktest) -> list[RenderableType]:
    """The cost of the job, one line per policy."""
    since, until, as_of = moment(about.since), moment(about.until), moment(about.as_of)
    started = f"{about.job.name}, started at {plural(_windows(about), 'full hour')} from {since} to {until}"
    lines = [Text(f"{started}, on records up to {as_of}", style="bold")]
    for cell in about.report.cells:
        costs = [window.cost for window in cell.windows]
        lines.append(
            Text(f"  {cell.policy}: ${fmean(costs):,.2f} on average, ${min(costs):,.2f} to ${max(costs):,.2f}")
        )
    return [*lines, ""]


def _windows(about: JobBacktest) -> int:
    return max((len(cell.windows) for cell in about.report.cells), default=0)


def _ratios(console: Console, cells: Sequence[PlacementCell], policies: Sequence[str]) -> list[RenderableType]:
    compared = [policy for policy in policies if policy != OMNISCIENT]
    rows: list[list[str | Text]] = []
    by: dict[tuple[str, str, float, float], dict[str, PlacementCell]] = {}
    for cell in cells:
        by.setdefault((cell.family, cell.pool, cell.deadline_s, cell.changeover_s), {})[cell.policy] = cell
    for (family, pool, deadline, changeover), of in by.items():
        ratios = {policy: of[policy].ratio_mean for policy in compared}
        least = min(ratios.values(), default=None)
        found = [Text(f"{ratio:.3f}", style="bold" if ratio == least else "") for ratio in ratios.values()]
        windows = str(len(next(iter(of.values())).windows))
        rows.append([family, pool, _hours(deadline), _hours(changeover), *found, windows])
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


def _totals(console: Console, cells: Sequence[PlacementCell], policies: Sequence[str]) -> list[RenderableType]:
    rows: list[list[str | Text]] = []
    for policy in policies:
        mine = [cell for cell in cells if cell.policy == policy]
        of = pooled(mine)
        rows.append(
            [
                policy,
                f"${fmean(window.cost for window in of.windows):,.2f}",
                f"{of.ratio_mean:.3f}",
                f"{max(cell.ratio_mean for cell in mine):.3f}",
                f"{of.ratio_p95:.3f}",
                Text(str(of.missed), style="bold red" if of.missed else ""),
                "–" if of.on_demand_share is None else percent(of.on_demand_share),
                "–" if of.interruptions is None else f"{of.interruptions:.1f}",
            ]
        )
    columns = [
        Column("policy"),
        Column("mean cost", 2, "right"),
        Column("over optimum", 0, "right"),
        Column("worst cell", 4, "right"),
        Column("95th percentile", 3, "right"),
        Column("missed", 1, "right"),
        Column("on-demand", 5, "right"),
        Column("interruptions", 6, "right"),
    ]
    return fitted(console, columns, rows)


def charts(report: PlacementReport) -> list[Chart]:
    """How far each policy is above the optimum over all pools: one bar per deadline (and changeover)."""
    policies = [policy for policy in dict.fromkeys(cell.policy for cell in report.cells) if policy != OMNISCIENT]
    groups: dict[tuple[float, float], list[PlacementCell]] = {}
    for cell in report.cells:
        groups.setdefault((cell.deadline_s, cell.changeover_s), []).append(cell)
    several = len({changeover for _, changeover in groups}) > 1
    bars = []
    for (deadline, changeover), cells in groups.items():
        ratios = [pooled([cell for cell in cells if cell.policy == policy]).ratio_mean for policy in policies]
        label = f"deadline {_hours(deadline)}" + (f", changeover {_hours(changeover)}" if several else "")
        bars.append(Bars(label, policies, [round(100 * (ratio - 1), 1) for ratio in ratios]))
    title = f"{_what(report)} on {_pools(report)}: cost of each policy"
    return [Chart(title, "policy", "% above the optimum's cost", bars=bars)]


def _pools(report: PlacementReport) -> str:
    sizes = {(cell.family, cell.pool): cell.together for cell in report.cells}
    if len(sizes) == sum(sizes.values()):
        return plural(len(sizes), "pool")
    together = f"{sum(sizes.values())} pools together"
    return together if len(sizes) == 1 else f"{together} in {plural(len(sizes), 'family', 'families')}"


def _hours(seconds: float) -> str:
    if seconds >= 3600 and seconds % 3600 == 0:
        return f"{seconds / 3600:g} h"
    return length(timedelta(seconds=seconds))
