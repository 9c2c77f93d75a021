"""`gpubroker backtest memory`: estimates of GPU memory against published measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.console import RenderableType

    from broker.app.results.backtests import MemoryBacktest, MemoryErrors

EXAMPLES = examples("gpubroker backtest memory", "gpubroker backtest memory --by-size --json")


def memory(
    context: typer.Context,
    by_size: Annotated[
        bool, typer.Option("--by-size", help="Estimate from the number of parameters alone, without configuration.")
    ] = False,
    usual_loss: Annotated[
        bool, typer.Option("--usual-loss", help="Use the default bytes per logit even if a source states its loss.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the estimates of `gpubroker advise size` with published measurements, row by row with its source.

    Rows marked "seen" were known when the constants of the estimate were chosen; the others were not.
    """
    from broker.app.results.backtests import MeasuredMemory, MemoryBacktest, MemoryErrors
    from broker.backtest.memory.published import compare, summary

    terminal = Terminal.of(context)
    found = compare(by_size=by_size, usual_loss=usual_loss)
    result = MemoryBacktest(
        rows=[MeasuredMemory.of(one) for one in found],
        all=MemoryErrors.of(summary(found)),
        unseen=MemoryErrors.of(summary(one for one in found if not one.measured.seen)),
    )
    if as_json:
        terminal.answer(result)
    else:
        terminal.show(*_tables(terminal, result))


def _tables(terminal: Terminal, result: MemoryBacktest) -> list[RenderableType]:
    from rich.text import Text

    from broker.cli.render.tables import Column, fitted

    columns = (
        Column("model"), Column("use"), Column("batch × context", 1, align="right"), Column("GPUs", 3, align="right"),
        Column("measured GiB", align="right"), Column("estimate", align="right"), Column("error", align="right"),
        Column("seen", 4), Column("source", 5, folds=True),
    )  # fmt: skip
    rows = [
        (
            row.model, f"{row.method} {row.precision}", f"{row.batch} × {row.context:,}", str(row.gpus),
            f"{row.measured_gib:.1f}", f"{row.estimated_gib:.1f}", f"{row.error:+.0%}", "yes" if row.seen else "no",
            row.source,
        )
        for row in result.rows
    ]  # fmt: skip
    return [
        *fitted(terminal.out, columns, rows),
        Text(_words("all rows", result.all)),
        Text(_words("unseen rows", result.unseen)),
    ]


def _words(name: str, errors: MemoryErrors) -> str:
    return (
        f"{name}: {errors.rows}, median error {errors.median:.1%}, largest {errors.worst:.0%}, "
        f"within 10 %: {errors.within_10_percent:.0%}, within 25 %: {errors.within_25_percent:.0%}"
    )
