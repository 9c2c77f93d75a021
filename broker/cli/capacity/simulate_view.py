"""A simulation as text: totals, teams, pools, budgets, refusals; beside an earlier one, what is different."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results.simulations import SimulatedTeam, SimulatedWaiting, SimulationReport
from broker.cli.render import formats
from broker.cli.render.tables import Column, fitted
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
# What the figures above mean, below them.
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
        row: list[str | Text] = [name, formats.NOTHING if now is None else text(now)]
        if before is not None:
            then = value(before)
            row.append(formats.NOTHING if then is None else text(then))
            row.append("" if now is None or then is None or now == then else _difference(now - then, text))
        rows.append(row)
    return [*fitted(console, columns, rows), *(Text(line, style="dim") for line in _MEANT)]


def _difference(more: float, text: Callable[[float], str]) -> str:
    return f"{'+' if more > 0 else '-'}{text(abs(more))}"


def _teams(console: Console, found: SimulationReport) -> list[RenderableType]:
    columns = [
        Column("team"),
        Column("jobs", 1, "right"),
        Column("refused", 3, "right"),
        Column("late", 4, "right"),
        Column("GPU-h useful", 5, "right"),
        Column("wait mean", 1, "right"),
        Column("p50", 6, "right"),
        Column("p95", 2, "right"),
        Column("slowdown", 7, "right"),
        Column("cash", 1, "right"),
        Column("owned", 8, "right"),
    ]
    rows: list[list[str | Text]] = [
        [
            one.team,
            f"{one.submitted:,}",
            f"{sum(one.refused.values()):,}",
            f"{one.late:,}" if one.with_deadline else formats.NOTHING,
            f"{one.useful_gpu_hours:,.0f}",
            _time(one.waiting.mean_s),
            _time(one.waiting.p50_s),
            _time(one.waiting.p95_s),
            formats.NOTHING if one.slowdown is None else f"{one.slowdown:.2f}",
            formats.money(_cost(one, "cash")),
            formats.money(_cost(one, "amortised")),
        ]
        for one in found.teams
    ]
    return fitted(console, columns, rows)


def _gangs(console: Console, found: SimulationReport) -> list[RenderableType]:
    """Waiting by the size of jobs; beside it, what a trace recorded."""
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
    columns = [
        Column("pool", folds=True),
        Column("machines", 2, "right"),
        Column("machine-hours", 1, "right"),
        Column("in use", 0, "right"),
        Column("GPUs in use", 3, "right"),
    ]
    rows: list[list[str | Text]] = [
        [
            one.pool,
            formats.NOTHING if one.machines is None else f"{one.machines:,}",
            f"{one.machine_hours:,.0f}",
            formats.NOTHING if one.utilisation is None else formats.percent(one.utilisation),
            formats.NOTHING if one.gpu_utilisation is None else formats.percent(one.gpu_utilisation),
        ]
        for one in found.pools
    ]
    return fitted(console, columns, rows)


def _budgets(console: Console, found: SimulationReport) -> list[RenderableType]:
    columns = [
        Column("budget"), Column("period from"), Column("spent", 0, "right"), Column("of", 1, "right"),
        Column("used", 0, "right"),
        Column("held at most", 1, "right"),
    ]  # fmt: skip
    rows: list[list[str | Text]] = [
        [
            one.budget,
            f"{one.period_start:%Y-%m-%d}",
            formats.money(Money.usd(one.spent)),
            formats.NOTHING if one.amount is None else formats.money(Money.usd(one.amount)),
            formats.NOTHING if one.share is None else formats.percent(one.share),
            formats.money(Money.usd(one.most_held)),
        ]
        for one in found.budgets[:_MOST_BUDGETS]
    ]
    more = len(found.budgets) - _MOST_BUDGETS
    notes = [f"{more} more periods: --json"] if more > 0 else []
    if any(one.amount is not None and Money.usd(one.most_held) > Money.usd(one.amount) for one in found.budgets):
        notes.append(_CARRIED)
    return fitted(console, columns, rows, *notes)


def _reasons(console: Console, title: str, reasons: dict[str, int]) -> list[RenderableType]:
    columns = [Column(title, folds=True), Column("jobs", 0, "right")]
    rows: list[list[str | Text]] = [[why, f"{number:,}"] for why, number in list(reasons.items())[:_MOST_REASONS]]
    return fitted(console, columns, rows)
