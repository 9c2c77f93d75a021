"""Budgets as text and as charts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from broker.cli.prices import watch
from broker.cli.render import formats
from broker.cli.render.charts.chart import Chart, Line
from broker.cli.render.tables import ValueColumn, table_parts
from broker.core.ports import BudgetSpec

if TYPE_CHECKING:
    from broker.app.billing.budget_documents import BudgetDetails, BudgetResult, BudgetScope, JobShareResult

_MAX_ROWS = 20  # of held money


def budget_table(console: Console, budgets: Sequence[BudgetResult], empty_text: str = "") -> list[RenderableType]:
    """One row per budget, in its current period; ``empty_text`` without any."""
    columns: tuple[ValueColumn[BudgetResult], ...] = (
        ValueColumn("budget", lambda row: row.id),
        ValueColumn("period", lambda row: row.period_name),
        ValueColumn("limit", lambda row: formats.money(row.limit), align="right"),
        ValueColumn("spent", lambda row: formats.money(row.spent), align="right"),
        ValueColumn("held", lambda row: formats.money(row.held), 2, "right"),
        ValueColumn("left", lambda row: _color_by_use(row, formats.money(row.left)), align="right"),
        ValueColumn("used", lambda row: _color_by_use(row, formats.percent(_used_share(row))), 3, "right"),
        ValueColumn("forecast", _forecast_text, 1, "right"),
        ValueColumn("counts", lambda row: ", ".join(row.counts), 5),
        ValueColumn("scope", lambda row: scope_text(row.scope), 6, folds=True),
    )
    return table_parts(console, columns, budgets) if budgets else [empty_text]


def _used_share(budget: BudgetResult) -> float:
    return (budget.spent + budget.held).micros / budget.limit.micros if budget.limit else 1.0


def _color_by_use(budget: BudgetResult, text: str) -> Text:
    return Text(text, style="red" if _used_share(budget) >= 1 else "yellow" if _used_share(budget) >= 0.8 else "green")


def _forecast_text(budget: BudgetResult) -> Text:
    expected = budget.forecast.expected
    return Text(formats.money(expected), style="red" if expected > budget.limit else "")


def budget_lines(console: Console, budget: BudgetDetails) -> Iterator[RenderableType]:
    """The row of a budget, and below it its details with the money that jobs hold."""
    yield from budget_table(console, [budget])
    yield from detail_lines(budget)
    yield from _held_by_job_lines(console, budget)


def detail_lines(budget: BudgetDetails) -> Iterator[str]:
    """Details of one budget below the table."""
    budget_forecast = budget.forecast
    over_limit_texts = {"alert": "allowed with an alert", "ask": "approval needed", "deny": "denied"}
    default_text = "denied, and running jobs are stopped once spending exceeds the limit"
    yield (
        f"{budget.id}: scope {scope_text(budget.scope)}; {formats.moment(budget.period_start)} to "
        f"{formats.moment(budget.period_end)}; defined in {budget.source}"
    )
    yield (
        f"  launches beyond the limit: {over_limit_texts.get(budget.action, default_text)}; alerts at: "
        f"{', '.join(budget.alerts) or 'none'}"
    )
    yield (
        f"  forecast for {budget.period_name}: {formats.money(budget_forecast.committed)} with running and waiting jobs"
        + (f", {formats.money(budget_forecast.trend)} at the present pace" if budget_forecast.trend is not None else "")
        + (
            f" ({formats.money(budget_forecast.low)} to {formats.money(budget_forecast.high)} in four of five cases)"
            if budget_forecast.high
            else ""
        )
        + (f" (used up on {formats.moment(budget_forecast.used_up_at)})" if budget_forecast.used_up_at else "")
    )
    if budget.spent:
        yield (
            f"  spent: {formats.money(budget.on_own)} on owned and reserved capacity, {formats.money(budget.rented)} "
            "rented"
        )
    if budget.passed:
        reached_marks = sorted(budget.passed.items(), key=lambda mark: mark[1])
        yield f"  alerts reached: {', '.join(f'{mark} on {formats.moment(at)}' for mark, at in reached_marks)}"
    yield from (f"  {watch.notice_text(notice)}" for notice in budget.notices)


def _held_by_job_lines(console: Console, budget: BudgetDetails) -> Iterator[RenderableType]:
    if not budget.held_by_job:
        return
    columns: tuple[ValueColumn[JobShareResult], ...] = (
        ValueColumn("job", lambda row: row.job),
        ValueColumn("period", lambda row: row.period),
        ValueColumn("held", lambda row: formats.money(row.held), align="right"),
        ValueColumn("from", lambda row: formats.moment(row.start), 2),
        ValueColumn("until", lambda row: formats.moment(row.until), 1),
    )
    hidden_count = len(budget.held_by_job) - _MAX_ROWS
    note = f"{formats.plural(hidden_count, 'more row')}; use --json to list all" if hidden_count > 0 else ""
    yield Text(f"held money of budget {budget.id} by job and period", style="bold")
    yield from table_parts(console, columns, budget.held_by_job[:_MAX_ROWS], note)


def budget_chart(budget: BudgetDetails) -> Chart:
    """Spending over the period: spent so far, limit, forecast."""
    budget_forecast, limit, days = budget.forecast, float(budget.limit.dollars), budget.days or ()
    daily_totals = [float(day.total.dollars) for day in days]
    lines = [
        Line("spent", [day.until for day in days], daily_totals),
        Line("limit", [budget.period_start, budget.period_end], [limit, limit]),
    ]
    if days and days[-1].until < budget.period_end:
        lines.append(
            Line(
                "forecast",
                [days[-1].until, budget.period_end],
                [daily_totals[-1], float(budget_forecast.expected.dollars)],
            )
        )
    note = f"{formats.money(budget.held)} held; forecast {formats.money(budget_forecast.expected)}"
    return Chart(f"Budget {budget.id}, {budget.period_name}", "time", "USD", lines=lines, note=note)


def scope_text(scope: BudgetScope | BudgetSpec) -> str:
    """``team nlp or vision, workload training``; ``all jobs``."""
    names_by_dimension = {
        "team": scope.teams,
        "project": scope.projects,
        "workload": scope.workloads,
        "user": scope.users,
        "environment": scope.environments,
    }
    return (
        ", ".join(f"{dimension} {' or '.join(names)}" for dimension, names in names_by_dimension.items() if names)
        or "all jobs"
    )
