"""Budgets as text and as charts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results.budgets import BudgetDetails, BudgetResult, BudgetScope
from broker.app.results.money import JobShareResult
from broker.cli.render import formats
from broker.cli.render.charts.chart import Chart, Line
from broker.cli.render.tables import ValueColumn, listed
from broker.cli.service import notices
from broker.core.ports import BudgetSpec

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_MOST_ROWS = 20  # of held money


def table(console: Console, found: Sequence[BudgetResult], none: str) -> list[RenderableType]:
    """One row per budget, in its current period; ``none`` without any."""
    columns: tuple[ValueColumn[BudgetResult], ...] = (
        ValueColumn("budget", lambda one: one.id),
        ValueColumn("period", lambda one: one.period_name),
        ValueColumn("limit", lambda one: formats.money(one.limit), align="right"),
        ValueColumn("spent", lambda one: formats.money(one.spent), align="right"),
        ValueColumn("held", lambda one: formats.money(one.held), 2, "right"),
        ValueColumn("left", lambda one: _in_colour(one, formats.money(one.left)), align="right"),
        ValueColumn("used", lambda one: _in_colour(one, formats.percent(_used(one))), 3, "right"),
        ValueColumn("forecast", _forecast, 1, "right"),
        ValueColumn("counts", lambda one: ", ".join(one.counts), 5),
        ValueColumn("scope", lambda one: scope_words(one.scope), 6, folds=True),
    )
    return listed(console, columns, found) if found else [none]


def _used(one: BudgetResult) -> float:
    return (one.spent + one.held).micros / one.limit.micros if one.limit else 1.0


def _in_colour(one: BudgetResult, text: str) -> Text:
    return Text(text, style="red" if _used(one) >= 1 else "yellow" if _used(one) >= 0.8 else "green")


def _forecast(one: BudgetResult) -> Text:
    expected = one.forecast.expected
    return Text(formats.money(expected), style="red" if expected > one.limit else "")


def details(console: Console, found: Sequence[BudgetDetails], none: str) -> Iterator[RenderableType]:
    """The table, and below it the details of each budget with the money that jobs hold."""
    yield from table(console, found, none)
    for one in found:
        yield from story(one)
        yield from _held_by_job(console, one)


def story(one: BudgetDetails) -> Iterator[str]:
    """Details of one budget below the table."""
    ahead = one.forecast
    beyond = {"alert": "allowed with an alert", "ask": "approval needed", "deny": "denied"}
    stops = "denied, and running jobs are stopped once spending exceeds the limit"
    yield (
        f"{one.id}: scope {scope_words(one.scope)}; {formats.moment(one.period_start)} to "
        f"{formats.moment(one.period_end)}; defined in {one.source}"
    )
    yield f"  launches beyond the limit: {beyond.get(one.action, stops)}; alerts at: {', '.join(one.alerts) or 'none'}"
    yield (
        f"  forecast for {one.period_name}: {formats.money(ahead.committed)} with running and waiting jobs"
        + (f", {formats.money(ahead.trend)} at the present pace" if ahead.trend is not None else "")
        + (f" ({formats.money(ahead.low)} to {formats.money(ahead.high)} in four of five cases)" if ahead.high else "")
        + (f" (used up on {formats.moment(ahead.used_up_at)})" if ahead.used_up_at else "")
    )
    if one.spent:
        yield f"  spent: {formats.money(one.on_own)} on owned and reserved capacity, {formats.money(one.rented)} rented"
    if one.passed:
        passed = sorted(one.passed.items(), key=lambda mark: mark[1])
        yield f"  alerts reached: {', '.join(f'{mark} on {formats.moment(at)}' for mark, at in passed)}"
    yield from (f"  {notices.dispatch(notice)}" for notice in one.notices)


def _held_by_job(console: Console, one: BudgetDetails) -> Iterator[RenderableType]:
    if not one.held_by_job:
        return
    columns: tuple[ValueColumn[JobShareResult], ...] = (
        ValueColumn("job", lambda share: share.job),
        ValueColumn("period", lambda share: share.period),
        ValueColumn("held", lambda share: formats.money(share.held), align="right"),
        ValueColumn("from", lambda share: formats.moment(share.start), 2),
        ValueColumn("until", lambda share: formats.moment(share.until), 1),
    )
    more = len(one.held_by_job) - _MOST_ROWS
    note = f"{formats.plural(more, 'more row')}; use --json to list all" if more > 0 else ""
    yield Text(f"held money of budget {one.id} by job and period", style="bold")
    yield from listed(console, columns, one.held_by_job[:_MOST_ROWS], note)


def chart(one: BudgetDetails) -> Chart:
    """Spending over the period: spent so far, limit, forecast."""
    ahead, limit, days = one.forecast, float(one.limit.dollars), one.days or ()
    spent = [float(day.total.dollars) for day in days]
    lines = [
        Line("spent", [day.until for day in days], spent),
        Line("limit", [one.period_start, one.period_end], [limit, limit]),
    ]
    if days and days[-1].until < one.period_end:
        lines.append(Line("forecast", [days[-1].until, one.period_end], [spent[-1], float(ahead.expected.dollars)]))
    note = f"{formats.money(one.held)} held; forecast {formats.money(ahead.expected)}"
    return Chart(f"Budget {one.id}, {one.period_name}", "time", "USD", lines=lines, note=note)


def scope_words(scope: BudgetScope | BudgetSpec) -> str:
    """``team nlp or vision, workload training``; ``all jobs``."""
    parts = {
        "team": scope.teams,
        "project": scope.projects,
        "workload": scope.workloads,
        "user": scope.users,
        "environment": scope.environments,
    }
    return ", ".join(f"{word} {' or '.join(names)}" for word, names in parts.items() if names) or "all jobs"
