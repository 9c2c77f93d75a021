"""`gpubroker backtest serving`: estimated speeds of serving against published ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.console import RenderableType

    from broker.app.results.estimate_backtests import ServingBacktest, ServingRatios

EXAMPLES = examples("gpubroker backtest serving", "gpubroker backtest serving --json")


def serving(context: typer.Context, as_json: AsJson = False) -> None:
    """Compare the speeds behind `gpubroker advise serve` with published ones, row by row with its source.

    A ratio above 1 is an estimate that is too fast. Rows marked "seen" were known when the constants of the estimate
    were chosen; the others were not.
    """
    from broker.app.results.estimate_backtests import ServingBacktest
    from broker.backtest.serving.published import compare, summary

    terminal = Terminal.of(context)
    found = compare()
    result = ServingBacktest.from_parts(
        rows=found,
        all=summary(found),
        unseen=summary(one for one in found if not one.measured.seen),
    )
    terminal.result(result, lambda: _tables(terminal, result))


def _tables(terminal: Terminal, result: ServingBacktest) -> list[RenderableType]:
    from rich.text import Text

    from broker.cli.render.tables import Column, fitted

    columns = (
        Column("model"), Column("GPUs"), Column("weights", 3), Column("prompt + output", align="right"),
        Column("measured tokens/s", align="right"), Column("estimate", align="right"), Column("ratio", align="right"),
        Column("seen", 4), Column("source", 5, folds=True),
    )  # fmt: skip
    rows = [
        (
            row.model, f"{row.gpus} × {row.accelerator}", row.precision,
            f"{row.prompt_tokens:,.0f} + {row.output_tokens:,.0f}", f"{row.measured_tokens_per_second:,.0f}",
            "does not fit" if row.estimated_tokens_per_second is None else f"{row.estimated_tokens_per_second:,.0f}",
            "" if row.ratio is None else f"{row.ratio:.2f}", "yes" if row.seen else "no", row.source,
        )
        for row in result.rows
    ]  # fmt: skip
    return [
        *fitted(terminal.out, columns, rows),
        Text(_words("all rows", result.all)),
        Text(_words("unseen rows", result.unseen)),
    ]


def _words(name: str, ratios: ServingRatios) -> str:
    return (
        f"{name}: {ratios.rows}, median ratio {ratios.median:.2f}, from {ratios.smallest:.2f} to {ratios.largest:.2f}, "
        f"within a factor of 1.25: {ratios.within_1_25:.0%}"
    )
