"""`gpubroker report forecasts`: predictions of plans compared with outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from broker.cli.options import AsJson, NamedPeriod, OnlyTeam, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.console import RenderableType

    from broker.app.results.forecasts import ForecastsReport
    from broker.finops.accuracy import PredictionError

EXAMPLES = examples(
    "gpubroker report forecasts",
    "gpubroker report forecasts --period last-quarter --team nlp",
    "gpubroker report forecasts --period 2026-11 --json",
)


def forecasts(
    context: typer.Context, period: NamedPeriod = "month", team: OnlyTeam = None, as_json: AsJson = False
) -> None:
    """Compare predictions of plans with outcomes, and show measurements of finished runs.

    Only successful runs on GPUs count; the prediction is that of a run's first plan. Tokens are those that programs
    report with `gpubroker_checkpoint.report`; the measured share of peak compute replaces the assumed one in advice.
    """
    from broker.app.billing.outcomes import forecasts as compared
    from broker.app.results.forecasts import ForecastsReport

    terminal = Terminal.of(context)
    found = ForecastsReport.of(compared(terminal.broker(), period, team))
    terminal.result(found, lambda: _screen(terminal, found))


def _screen(terminal: Terminal, found: ForecastsReport) -> list[RenderableType]:
    from broker.cli.render import formats
    from broker.cli.render.tables import Column, fitted

    runs = formats.plural(found.runs, "successful run")
    head = f"{runs} on GPUs from {found.since:%Y-%m-%d} to {found.until:%Y-%m-%d}"
    if found.unpredicted:
        head += (
            f"; {found.unpredicted} of unknown work: `work` or a model's `tokens` in the job file lets plans predict"
        )
    parts: list[RenderableType] = [head]
    columns = (
        Column("prediction"), Column("runs", align="right"), Column("predicted", align="right"),
        Column("happened", align="right"), Column("median ratio", align="right"),
        Column("mean error", align="right", rank=2), Column("worst", align="right", rank=3),
        Column("within 25%", align="right", rank=1),
    )  # fmt: skip
    if found.errors:
        parts += fitted(terminal.out, columns, [_row(one) for one in found.errors])
    if found.measured:
        measured = (
            Column("measured on"), Column("runs", align="right"), Column("GPU-hours", align="right"),
            Column("paid/GPU-hour", align="right"), Column("MFU", align="right"), Column("runs", align="right", rank=3),
            Column("tokens/s/GPU", align="right"), Column("runs", align="right", rank=4),
            Column("interruptions/1000 h", align="right", rank=2),
        )  # fmt: skip
        rows = [
            (one.accelerator, f"{one.runs:,}", f"{one.gpu_hours:,.0f}", f"${one.usd_per_gpu_hour:.2f}",
             "-" if one.mfu is None else f"{one.mfu:.0%}", f"{one.mfu_runs:,}",
             "-" if one.tokens_per_second is None else f"{one.tokens_per_second:,.3g}", f"{one.token_runs:,}",
             "-" if one.interruptions_per_1000_hours is None else f"{one.interruptions_per_1000_hours:.2g}")
            for one in found.measured
        ]  # fmt: skip
        parts += fitted(terminal.out, measured, rows)
    return parts


def _row(one: PredictionError) -> tuple[str, ...]:
    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.0%}"

    unit = {"cost": "${:,.2f}", "price of a GPU-hour": "${:,.2f}", "time": "{:,.1f} h"}.get(one.kind.value, "{:,.1f}")
    return (
        one.kind.value, f"{one.runs:,}", unit.format(one.predicted), unit.format(one.happened),
        "-" if one.ratio is None else f"{one.ratio:.2f}", share(one.mean_error), share(one.worst), share(one.within),
    )  # fmt: skip
