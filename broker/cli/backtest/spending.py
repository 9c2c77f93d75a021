"""`gpubroker backtest forecast` and `gpubroker backtest anomalies`: on recorded daily spending."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from broker.app.results.spending_backtests import AnomalyBacktest, ForecastBacktest

FORECAST_EXAMPLES = examples(
    "gpubroker backtest forecast spending.csv", "gpubroker backtest forecast spending.csv --json"
)
ANOMALY_EXAMPLES = examples(
    "gpubroker backtest anomalies spending.csv", "gpubroker backtest anomalies spending.csv --labels labels.csv --json"
)
Series = Annotated[
    Path,
    typer.Argument(metavar="SERIES.csv", help="CSV with a header: a column of days, then a column per series (USD)."),
]


def forecast(context: typer.Context, series: Series, as_json: AsJson = False) -> None:
    """Measure forecasts of the total of a month, made on its days 10, 15 and 20, on recorded daily spending.

    Windows are 30 consecutive days, one from every third day of each series. The method is that of budgets: an average
    of models of daily spending, each as likely as its past makes it, with an 80 % interval that the series' own past
    calibrates. The run rate (the month's average, continued) is shown for comparison.
    """
    from broker.app.results.spending_backtests import ForecastBacktest
    from broker.backtest.spending.forecasts import run_forecast_backtest
    from broker.backtest.spending.series import read_series
    from broker.cli.render.figures import progress

    terminal = Terminal.of(context)
    found, notes = read_series(series)
    with progress(terminal, "measuring") as told:
        accuracy = run_forecast_backtest(found, told)
    result = ForecastBacktest.of(str(series), accuracy, notes)
    terminal.result(result, lambda: _forecast_table(terminal, result))


def anomalies(
    context: typer.Context,
    series: Series,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels", metavar="LABELS.csv", help="CSV: series, first day, last day of known episodes, days included."
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Without --labels: random seed of the planted episodes.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Measure the detection of anomalies in recorded daily spending: share found, delay, and false alarms.

    Without --labels, every alarm in the record counts as false, and the episodes to find are planted: three days from a
    random day on, raised by 50, 100 and 200 % of the median of the four weeks before. The first 14 days of a series are
    not judged.
    """
    from broker.app.results.spending_backtests import AnomalyBacktest
    from broker.backtest.spending.anomalies import run_anomaly_backtest, too_short
    from broker.backtest.spending.series import read_labels, read_series
    from broker.finops.anomalies import AlarmThreshold

    terminal = Terminal.of(context)
    found, notes = read_series(series)
    marked = None if labels is None else read_labels(labels, found)
    accuracy = run_anomaly_backtest(found, marked, AlarmThreshold(), seed)
    result = AnomalyBacktest.of(
        str(series), None if labels is None else str(labels), accuracy, [*notes, *too_short(found)]
    )
    terminal.result(result, lambda: _anomaly_table(terminal, result))


# --- drawing --------------------------------------------------------------------------------------------------------


def _forecast_table(terminal: Terminal, found: ForecastBacktest) -> list[RenderableType]:
    from rich.text import Text

    from broker.cli.render.tables import Column, fitted

    columns = (
        Column("forecast on day"),
        Column("windows", 3, align="right"),
        Column("mean error", align="right"),
        Column("90th percentile", 2, align="right"),
        Column("run rate's error", 1, align="right"),
        Column("in interval", align="right"),
        Column("interval's width", 4, align="right"),
    )
    rows: list[list[str | Text]] = [
        [
            str(one.day),
            f"{one.windows:,}",
            *(_percent(share) for share in (one.error, one.error_p90, one.run_rate_error)),
            *(_percent(share) for share in (one.coverage, one.interval_width)),
        ]
        for one in found.days
    ]
    footer = (
        f"Errors are shares of the total of each {found.period_days}-day window; the interval should contain"
        f" {found.interval:.0%} of the totals."
    )
    return [*fitted(terminal.out, columns, rows), *(Text(line, style="dim") for line in [footer, *found.notes])]


def _anomaly_table(terminal: Terminal, found: AnomalyBacktest) -> list[RenderableType]:
    from rich.text import Text

    from broker.cli.render.tables import Column, fitted

    columns = (
        Column("episodes"),
        Column("judged", 1, align="right"),
        Column("found", align="right"),
        Column("recall", align="right"),
        Column("mean delay", align="right"),
    )
    rows: list[list[str | Text]] = [
        [
            "labelled" if one.size is None else f"planted, +{one.size:.0%}",
            f"{one.episodes:,}",
            f"{one.found:,}",
            _percent(one.recall),
            "–" if one.delay_days is None else f"{one.delay_days:.1f} d",
        ]
        for one in ([found.labelled] if found.labelled else found.planted)
    ]
    often = "–" if found.alarms_per_30_series_days is None else f"{found.alarms_per_30_series_days:.2f}"
    lines = [f"{found.alarms:,} false alarms in {found.series_days:,} series-days: {often} in 30 series-days"]
    if found.alarms:
        lines.append(f"stopped by these, if alarms stopped jobs: {_percent(found.held_back)} of all spending")
    if found.labels_unjudged:
        lines.append(f"{found.labels_unjudged} labelled episodes lie in the warm-up of their series: not judged")
    for one in found.series:
        days = ", ".join(
            it.first_day if it.first_day == it.last_day else f"{it.first_day} to {it.last_day}" for it in one.incidents
        )
        if days:
            lines.append(f"{one.series}: {days}")
    return [*fitted(terminal.out, columns, rows), *(Text(line, style="dim") for line in [*lines, *found.notes])]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"
