"""Budgets as text and as charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results.budgets import BudgetScope
from broker.cli.render import formats
from broker.cli.render.tables import Column, fitted
from broker.cli.service import notices_view
from broker.core.ports import BudgetSpec
from broker.core.values.money import Money

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.billing.budgets import BudgetLine, Day
    from broker.cli.render.charts.chart import Chart
    from broker.store.outbox import Dispatch

_BUDGETS = (
    Column("budget"),
    Column("period"),
    Column("limit", align="right"),
    Column("spent", align="right"),
    Column("held", 2, align="right"),
    Column("left", align="right"),
    Column("used", 3, align="right"),
    Column("forecast", 1, align="right"),
    Column("counts", 5),
    Column("scope", 6, folds=True),
)


def table(console: Console, lines: Sequence[BudgetLine]) -> list[RenderableType]:
    """One row per budget, in its current period."""
    return fitted(console, _BUDGETS, [_cells(line) for line in lines])


def _cells(line: BudgetLine) -> list[str | Text]:
    used = (line.use.spent + line.use.held).micros / line.limit.micros if line.limit else 1.0
    style = "red" if used >= 1 else "yellow" if used >= 0.8 else "green"
    expected = line.forecast.expected
    return [
        line.spec.id,
        line.period_name,
        formats.money(line.limit),
        formats.money(line.use.spent),
        formats.money(line.use.held),
        Text(formats.money(line.left), style=style),
        Text(formats.percent(used), style=style),
        Text(formats.money(expected), style="red" if expected > line.limit else ""),
        ", ".join(sorted(line.spec.counts)),
        scope_words(line.spec),
    ]


def story(line: BudgetLine, told: Sequence[Dispatch], on_own: Money) -> list[str]:
    """Details of one budget below the table. ``on_own``: spent for owned and reserved capacity."""
    use, ahead = line.use, line.forecast
    beyond = {"alert": "allowed with an alert", "ask": "approval needed", "deny": "denied"}
    stops = "denied, and running jobs are stopped once spending exceeds the limit"
    found = [
        f"{line.spec.id}: scope {scope_words(line.spec)}; {formats.moment(use.period_start)} to "
        f"{formats.moment(use.period_end)}; defined in {line.source}",
        f"  launches beyond the limit: {beyond.get(line.action, stops)}; alerts at: {', '.join(line.alerts) or 'none'}",
        f"  forecast for {line.period_name}: {formats.money(ahead.committed)} with running and waiting jobs"
        + (f", {formats.money(ahead.trend)} at the present pace" if ahead.trend is not None else "")
        + (f" ({formats.money(ahead.low)} to {formats.money(ahead.high)} in four of five cases)" if ahead.high else "")
        + (f" (used up on {formats.moment(ahead.used_up_at)})" if ahead.used_up_at else ""),
    ]
    if use.spent:
        rented = formats.money(use.spent - on_own)
        found.append(f"  spent: {formats.money(on_own)} on owned and reserved capacity, {rented} rented")
    if line.marks:
        passed = ", ".join(
            f"{mark} on {formats.moment(at)}" for mark, at in sorted(line.marks.items(), key=lambda m: m[1])
        )
        found.append(f"  alerts reached: {passed}")
    found += [f"  {notices_view.dispatch(one)}" for one in told]
    return found


def chart(line: BudgetLine, days: Sequence[Day]) -> Chart:
    """Spending over the period: spent so far, limit, forecast."""
    from broker.cli.render.charts.chart import Chart, Line

    use, ahead, limit = line.use, line.forecast, float(line.limit.dollars)
    spent = [float(day.total.dollars) for day in days]
    lines = [
        Line("spent", [day.until for day in days], spent),
        Line("limit", [use.period_start, use.period_end], [limit, limit]),
    ]
    if days and days[-1].until < use.period_end:
        lines.append(Line("forecast", [days[-1].until, use.period_end], [spent[-1], float(ahead.expected.dollars)]))
    note = f"{formats.money(use.held)} held; forecast {formats.money(ahead.expected)}"
    return Chart(f"Budget {line.spec.id}, {line.period_name}", "time", "USD", lines=lines, note=note)


def scope_words(spec: BudgetSpec | BudgetScope) -> str:
    """``team nlp or vision, workload training``; ``all jobs``."""
    parts = {
        "team": spec.teams,
        "project": spec.projects,
        "workload": spec.workloads,
        "user": spec.users,
        "environment": spec.environments,
    }
    return ", ".join(f"{word} {' or '.join(names)}" for word, names in parts.items() if names) or "all jobs"
