"""`gpubroker backtest memory`: estimates of GPU memory against published measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.console import RenderableType

    from broker.app.results.estimate_backtests import MemoryBacktest, MemoryErrors

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
    """Compare the estimates of `gpubroker advise size` and `advise images` with measurements, row by row, with sources.

    Rows marked "seen" were known when the constants of the estimate were chosen; the others were not.
    """
    from broker.app.results.estimate_backtests import MemoryBacktest
    from broker.backtest.memory.images import compare_images
    from broker.backtest.memory.published import compare, summary

    terminal = Terminal.of(context)
    found, images = compare(by_size=by_size, usual_loss=usual_loss), compare_images()
    result = MemoryBacktest.from_parts(
        rows=found,
        all=summary(found),
        unseen=summary(one for one in found if not one.measured.seen),
        images=images,
        unseen_images=summary(one for one in images if not one.measured.seen),
    )
    terminal.result(result, lambda: _tables(terminal, result))


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
        "",
        *_images(terminal, result),
        Text(_words("unseen rows of networks on images", result.unseen_images)),
    ]


def _images(terminal: Terminal, result: MemoryBacktest) -> list[RenderableType]:
    from broker.cli.render.tables import Column, fitted

    columns = (
        Column("network"), Column("use"), Column("batch × pixels", 1, align="right"),
        Column("measured GiB", align="right"), Column("estimate", align="right"), Column("error", align="right"),
        Column("speed: estimate / measured", 2, align="right"), Column("seen", 3), Column("source", 4, folds=True),
    )  # fmt: skip
    rows = [
        (
            row.network, f"{row.method}{', checkpoints' * row.checkpointing}", f"{row.batch} × {row.size}",
            f"{row.measured_gib:.1f}", f"{row.estimated_gib:.1f}", f"{row.error:+.0%}",
            "" if row.speed_ratio is None else f"{row.speed_ratio:.2f}", "yes" if row.seen else "no", row.source,
        )
        for row in result.images
    ]  # fmt: skip
    return fitted(terminal.out, columns, rows)


def _words(name: str, errors: MemoryErrors) -> str:
    return (
        f"{name}: {errors.rows}, median error {errors.median:.1%}, largest {errors.worst:.0%}, "
        f"within 10 %: {errors.within_10_percent:.0%}, within 25 %: {errors.within_25_percent:.0%}"
    )
