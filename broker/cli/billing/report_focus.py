"""`gpubroker report focus`: a month in the columns of FOCUS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from broker.cli.options import MONTH_HELP, AsJson, examples
from broker.cli.terminal import Terminal

EXAMPLES = examples(
    "gpubroker report focus --month 2026-11 --out november.csv",
    "gpubroker report focus --version 1.4 --month 2026-11 --out november.parquet --force --json",
)


def focus(
    context: typer.Context,
    month: Annotated[str, typer.Option("--month", metavar="MONTH", help=MONTH_HELP)],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="A .csv or .parquet file.")],
    version: Annotated[str, typer.Option("--version", help="1.2 or 1.4.")] = "1.2",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a month's charges as FOCUS (the FinOps Open Cost and Usage Specification), dataset Cost and Usage.

    Cash is both BilledCost and EffectiveCost. Use of owned and prepaid capacity has only an EffectiveCost, its purchase
    only a BilledCost. A month closes three days after its end; later postings are corrections in the next month, so the
    file of a closed month never changes. Parquet needs the extra `parquet`.
    """
    from rich.text import Text

    from broker.app.billing.focus import export
    from broker.app.results.focus import FocusExportResult
    from broker.cli.render import formats

    terminal = Terminal.of(context)
    done = export(terminal.broker(), version, month, out, replace=force)
    if as_json:
        terminal.answer(FocusExportResult.of(done))
        return
    corrections = f", {formats.plural(done.corrections, 'correction')} of earlier months" if done.corrections else ""
    terminal.show(
        f"{done.file}: {formats.plural(done.rows, 'charge')} of {done.month.name}{corrections}; billed"
        f" {formats.money(done.billed)}, effective {formats.money(done.effective)}"
    )
    if not done.closed:
        terminal.show(Text(f"{done.month.name} is open until {formats.moment(done.month.closes)}", style="dim"))
