"""A simulation as text: totals, teams, pools, budgets, refusals, and the differences from an earlier one; as charts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results.simulations import (
    SimulatedBudgetPeriod,
    SimulatedPoolUse,
    SimulatedTeam,
    SimulatedWaiting,
    SimulationReport,
)
from broker.cli.render import formats
from broker.cli.render.charts.chart import Chart, Line
from broker.cli.render.tables import Column, ValueColumn, fitted, listed
from broker.core.values.money import Money

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_MOST_BUDGETS = 12
_MOST_REASONS = 8


def report(console: Console, found: SimulationReport, before: SimulationReport | None) -> list[RenderableType]:
    """The whole report."""
    head = f"{found.workload}: {formats.plural(found.jobs, 'job')} in {formats.plural(found.days, 'day')}"
    shown: list[RenderableType] = [Text(f"{head}, seed {found.seed}; simulated market, machines and money", "bold"), ""]
    shown += _totals(console, found, before)
    shown += ["", *_teams(console, found), "", *_pools(console, found)]
    shown += ["", *_gangs(console, found)]
    if found.budgets:
        shown += ["", *_budgets(console, found)]
    for title, reasons in (("Refused", found.total.refused), ("Put off at their turn", found.total.put_off)):
        if reasons:
            shown += ["", *_reasons(console, title, reasons)]
    end = timedelta(seconds=found.ended_after_s)
    ledger = "balanced, nothing held" if found.balanced else f"NOT balanced: {'; '.join(found.faults[:3])}"
    shown += [
        "",
        Text(f"ended after {formats.length(end)} of virtual time"),
        Text(f"{formats.plural(found.decisions, 'decision')}, each about a group of identical jobs"),
        Text(f"ledger  {ledger}; {formats.plural(found.movements, 'movement')}", "" if found.balanced else "red"),
        Text(f"hash    {found.digest}"),
        *(Text(note, style="dim") for note in found.notes),
    ]
    return shown


def _cost(team: SimulatedTeam, kind: str) -> Money:
    return Money.usd(team.cost.get(kind, "0"))


def _time(seconds: float) -> str:
    return formats.length(timedelta(seconds=seconds))


def _dollars(value: float) -> str:
    return formats.money(Money(round(value)))


def _usd(amount: str) -> str:
    return formats.money(Money.usd(amount))


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _index(value: float) -> str:
    return f"{value:.3f}"


Figure = tuple[str, Callable[[SimulationReport], float | None], Callable[[float], str]]
_FIGURES: tuple[Figure, ...] = (
    ("cost, cash", lambda r: _cost(r.total, "cash").micros, _dollars),
    ("cost, owned and reserved", lambda r: _cost(r.total, "amortised").micros, _dollars),
    ("jobs finished", lambda r: r.total.finished, _count),
    ("jobs refused", lambda r: sum(r.total.refused.values()), _count),
    ("jobs stopped by limits", lambda r: sum(r.total.stopped.values()), _count),
    ("jobs unfinished", lambda r: r.total.unfinished, _count),
    ("jobs late", lambda r: r.total.late, _count),
    ("interruptions", lambda r: r.total.interruptions, _count),
    ("waiting, mean", lambda r: r.total.waiting.mean_s, _time),
    ("waiting, median", lambda r: r.total.waiting.p50_s, _time),
    ("waiting, 95th percentile", lambda r: r.total.waiting.p95_s, _time),
    ("slowdown, mean", lambda r: r.total.slowdown, lambda value: f"{value:.2f}"),
    ("GPU-hours useful", lambda r: r.total.useful_gpu_hours, _count),
    ("fairness of service", lambda r: r.fairness_of_service, _index),
    ("fairness of slowdown", lambda r: r.fairness_of_slowdown, _index),
)
# The meaning of the figures, printed below them.
_MEANT = (
    "slowdown: time from submission to finish, divided by the work; 1 is no waiting (work below 10s counts as 10s)",
    "fairness among teams (Jain's index): 1 if all are treated alike, 1/n if one of n gets all; of service: the share"
    " of the requested GPU-hours that was done",
)

_CARRIED = (
    "held more than the amount: jobs that still wait when a period begins take their holds into it; each is judged"
    " again before it starts"
)


def _totals(console: Console, found: SimulationReport, before: SimulationReport | None) -> list[RenderableType]:
    columns = [Column("all teams"), Column("now" if before else "", 0, "right")]
    if before is not None:
        columns += [Column("before", 1, "right"), Column("difference", 2, "right")]
    rows: list[list[str | Text]] = []
    for name, value, text in _FIGURES:
        now = value(found)
        row: list[str | Text] = [name, formats.known(now, text)]
        if before is not None:
            then = value(before)
            row.append(formats.known(then, text))
            row.append("" if now is None or then is None or now == then else _difference(now - then, text))
        rows.append(row)
    return [*fitted(console, columns, rows), *(Text(line, style="dim") for line in _MEANT)]


def _difference(more: float, text: Callable[[float], str]) -> str:
    return f"{'+' if more > 0 else '-'}{text(abs(more))}"


def _teams(console: Console, found: SimulationReport) -> list[RenderableType]:
    columns: tuple[ValueColumn[SimulatedTeam], ...] = (
        ValueColumn("team", lambda one: one.team),
        ValueColumn("jobs", lambda one: f"{one.submitted:,}", 1, "right"),
        ValueColumn("refused", lambda one: f"{sum(one.refused.values()):,}", 3, "right"),
        ValueColumn("late", lambda one: f"{one.late:,}" if one.with_deadline else formats.NOTHING, 4, "right"),
        ValueColumn("GPU-h useful", lambda one: f"{one.useful_gpu_hours:,.0f}", 5, "right"),
        ValueColumn("wait mean", lambda one: _time(one.waiting.mean_s), 1, "right"),
        ValueColumn("p50", lambda one: _time(one.waiting.p50_s), 6, "right"),
        ValueColumn("p95", lambda one: _time(one.waiting.p95_s), 2, "right"),
        ValueColumn("slowdown", lambda one: formats.known(one.slowdown, "{:.2f}".format), 7, "right"),
        ValueColumn("cash", lambda one: formats.money(_cost(one, "cash")), 1, "right"),
        ValueColumn("owned", lambda one: formats.money(_cost(one, "amortised")), 8, "right"),
    )
    return listed(console, columns, found.teams)


def _gangs(console: Console, found: SimulationReport) -> list[RenderableType]:
    """Waiting times by the size of jobs, beside those that a trace recorded."""
    columns = [
        Column("GPUs of a job"),
        Column("started", 2, "right"),
        Column("waited", 1, "right"),
        Column("mean", 0, "right"),
        Column("p95", 3, "right"),
    ]
    compared = found.recorded
    if compared is not None:
        columns += [Column("waited then", 4, "right"), Column("mean then", 1, "right"), Column("p95 then", 5, "right")]
    rows: list[list[str | Text]] = []
    for one in found.gangs:
        if one.started or one.recorded is not None:
            row: list[str | Text] = [one.gpus, f"{one.started:,}", *_waits(one.waiting)]
            rows.append(row if compared is None else [*row, *_waits(one.recorded)])
    shown = fitted(console, columns, rows)
    if compared is not None:
        ranks = ", ".join(
            f"{name} {_index(value)}"
            for name, value in (("teams", compared.teams_agree), ("sizes of jobs", compared.gangs_agree))
            if value is not None
        )
        if ranks:
            shown.append(Text(f"order of mean waits beside the recorded one (Spearman): {ranks}"))
    return shown


def _waits(waiting: SimulatedWaiting | None) -> list[str]:
    if waiting is None:
        return [formats.NOTHING] * 3
    return [formats.percent(waiting.waited_share), _time(waiting.mean_s), _time(waiting.p95_s)]


def _pools(console: Console, found: SimulationReport) -> list[RenderableType]:
    columns: tuple[ValueColumn[SimulatedPoolUse], ...] = (
        ValueColumn("pool", lambda one: one.pool, folds=True),
        ValueColumn("machines", lambda one: formats.known(one.machines, _count), 2, "right"),
        ValueColumn("machine-hours", lambda one: f"{one.machine_hours:,.0f}", 1, "right"),
        ValueColumn("in use", lambda one: formats.known(one.utilisation, formats.percent), 0, "right"),
        ValueColumn("GPUs in use", lambda one: formats.known(one.gpu_utilisation, formats.percent), 3, "right"),
    )
    return listed(console, columns, found.pools)


def _budgets(console: Console, found: SimulationReport) -> list[RenderableType]:
    columns: tuple[ValueColumn[SimulatedBudgetPeriod], ...] = (
        ValueColumn("budget", lambda one: one.budget),
        ValueColumn("period from", lambda one: f"{one.period_start:%Y-%m-%d}"),
        ValueColumn("spent", lambda one: _usd(one.spent), 0, "right"),
        ValueColumn("of", lambda one: formats.known(one.amount, _usd), 1, "right"),
        ValueColumn("used", lambda one: formats.known(one.share, formats.percent), 0, "right"),
        ValueColumn("held at most", lambda one: _usd(one.most_held), 1, "right"),
    )
    more = len(found.budgets) - _MOST_BUDGETS
    notes = [f"{more} more periods: --json"] if more > 0 else []
    if any(one.amount is not None and Money.usd(one.most_held) > Money.usd(one.amount) for one in found.budgets):
        notes.append(_CARRIED)
    return listed(console, columns, found.budgets[:_MOST_BUDGETS], *notes)


def _reasons(console: Console, title: str, reasons: dict[str, int]) -> list[RenderableType]:
    columns = [Column(title, folds=True), Column("jobs", 0, "right")]
    rows: list[list[str | Text]] = [[why, f"{number:,}"] for why, number in list(reasons.items())[:_MOST_REASONS]]
    return fitted(console, columns, rows)


_KINDS = {"amortised": "owned and reserved"}  # as the table of totals calls it


def charts(report: SimulationReport) -> list[Chart]:
    """Three charts over the days in which jobs arrive; none for the report of an earlier version."""
    found = report.over_time
    if found is None:
        return []
    times = [report.start + timedelta(seconds=found.step_s * slot) for slot in range(len(found.waiting))]
    name = f"{report.workload}, seed {report.seed}"
    gpus, spend = _lines(found.gpus_in_use, times), _lines(_rented_first(found.usd_per_hour), times)
    waiting = [Line("waiting", times, found.waiting, step=True)]
    note = "Simulated market, machines and money."
    return [
        Chart(f"{name}: accelerators in use", "time", "accelerators", gpus, note=note),
        Chart(f"{name}: jobs that wait", "time", "jobs", waiting),
        Chart(f"{name}: spend", "time", "USD per hour", spend),
    ]


def _rented_first(spend: Mapping[str, Sequence[float]]) -> Mapping[str, Sequence[float]]:
    """The spend by kind, in the order of the chart of GPUs in use, so that owned machines have the same sign in both
    charts."""
    return {_KINDS.get(kind, kind): spend[kind] for kind in sorted(spend, key="amortised".__eq__)}


def _lines(values: Mapping[str, Sequence[float]], times: Sequence[datetime]) -> list[Line]:
    return [Line(kind.replace("_", " "), times, series, step=True) for kind, series in values.items()]
