"""`gpubroker report`: spending, and what providers charged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli import filters
from broker.cli.billing import (
    report_anomalies,
    report_billed,
    report_focus,
    report_forecasts,
    report_review,
    report_showback,
    report_units,
)
from broker.cli.options import AsJson, MaybePeriod, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from datetime import datetime

    from broker.app.billing.report import SpendRow

app = typer.Typer(no_args_is_help=True, help="Report spending, and compare it with provider charges.")


@app.callback()
def report() -> None:
    """Report spending, and compare it with provider charges."""


@app.command(
    epilog=examples(
        "gpubroker report spend",
        "gpubroker report spend --by provider --since 30d",
        "gpubroker report spend --by user --since 2026-11-01 --until 2026-12-01 --json",
        "gpubroker report spend --by team,user,month --period quarter --out spend.csv",
        "gpubroker report spend --sandbox",
    )
)
def spend(
    context: typer.Context,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="DIM",
            help="team, project, user, workload, environment, job, provider, region, capacity_type, accelerator,"
            " instance_type or month; or several of them: team,user,month.",
        ),
    ] = "team",
    since: Annotated[
        str | None, typer.Option("--since", "--from", metavar="WHEN", help="Start: 2026-11-01, or 7d (ago).")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", "--to", metavar="WHEN", help="End, exclusive.")] = None,
    period: MaybePeriod = None,
    sandbox: Annotated[bool, typer.Option("--sandbox", help="Only simulated money.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write all rows to a new .csv, .parquet or .html file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show spending from the ledger by team, project, provider or other dimensions, most expensive first.

    Without a period, `--by month` shows the last twelve months. Parquet needs the extra `parquet`.
    """
    from broker.app.billing.focus_files import FORMATS
    from broker.app.billing.report import MONTH, bought_in_advance, months_before
    from broker.app.billing.report import spend as spent
    from broker.app.billing.spend_files import write_spend
    from broker.cli.render import formats

    terminal = Terminal.of(context)
    broker = terminal.broker()
    now = broker.clock.now()
    start, end = filters.period(period, since, until, now)
    if start and end and start >= end:
        raise InvalidInput("the period ends before it begins", where="--until", hint="give a time after --since")
    by = ",".join(name.strip().replace("-", "_") for name in by.split(","))
    if MONTH in by.split(",") and start is None:
        start = months_before(now)
    rows = spent(broker, by, since=start, until=end, sandbox=sandbox)
    ahead = bought_in_advance(broker, since=start, until=end, sandbox=sandbox)
    if out is not None:
        if out.suffix.lower() == ".html":
            _write_page(out, by, rows, start, end)
        elif out.suffix.lower() not in FORMATS:
            hint = f"end in {', '.join(FORMATS)} or .html; --json prints JSON"
            raise InvalidInput(f"cannot write {out.suffix or 'a file without an ending'}", where=str(out), hint=hint)
        else:
            write_spend(out, by.split(","), rows)
        terminal.say(f"{formats.plural(len(rows), 'row')} written to {out}")
    if as_json:
        from broker.app.results.spend import SpendReport

        terminal.answer(SpendReport.of(rows, by, start, end, sandbox=sandbox, bought_in_advance=ahead))
    else:
        terminal.show(*_table(terminal, rows, by, sandbox))
        if ahead:
            terminal.show(f"and {formats.money(ahead)} paid for bought capacity, whose use is amortised cost")


app.command("billed", epilog=report_billed.BILLED_EXAMPLES)(report_billed.billed)
app.command("focus", epilog=report_focus.EXAMPLES)(report_focus.focus)
app.command("showback", epilog=report_showback.SHOWBACK_EXAMPLES)(report_showback.showback)
app.command("chargeback", epilog=report_showback.CHARGEBACK_EXAMPLES)(report_showback.chargeback)
app.command("anomalies", epilog=report_anomalies.EXAMPLES)(report_anomalies.anomalies)
app.command("units", epilog=report_units.EXAMPLES)(report_units.units)
app.command("forecasts", epilog=report_forecasts.EXAMPLES)(report_forecasts.forecasts)
app.command("review", epilog=report_review.EXAMPLES)(report_review.review)
app.add_typer(report_billed.charges, name="charges")


def _write_page(out: Path, by: str, rows: list[SpendRow], start: datetime | None, end: datetime | None) -> None:
    from broker.app.billing.focus_files import drafted
    from broker.cli.render import formats
    from broker.cli.render.written import Block, Grid, Heading, Paragraph, html

    if out.exists():
        raise InvalidInput("the file exists already", where=str(out), hint="name another file")
    dimensions, money = by.split(","), ("cash", "amortised", "sandbox", "held", "bought", "rented")
    lines = [
        [
            *row.values,
            *(formats.money(getattr(row, name)) for name in money),
            f"{row.gpu_hours:,.2f}", f"{row.machine_hours:,.2f}", f"{row.attempts:,}", f"{row.jobs:,}",
        ]
        for row in rows
    ]  # fmt: skip
    since, until = (
        formats.moment(at) if at else f"the {other}" for at, other in ((start, "beginning"), (end, "present"))
    )
    header = [*dimensions, *money, "GPU-hours", "machine-hours", "attempts", "jobs"]
    blocks: list[Block] = [
        Heading(f"Spending by {', '.join(dimensions)}", 1),
        Paragraph(f"From {since} to {until}. Amounts are USD; bought is the part on owned and reserved machines."),
        Grid(header, lines, figures=len(dimensions)),
    ]
    with drafted(out) as draft:
        draft.write_text(html(blocks), encoding="utf-8")


def _table(terminal: Terminal, rows: list[SpendRow], by: str, sandbox: bool) -> list[Any]:
    from rich.text import Text

    from broker.cli.render import formats
    from broker.cli.render.tables import Column, fitted
    from broker.core.values.money import Money

    if not rows:
        return ["nothing was spent in this period" + ("" if sandbox else "; use --sandbox for simulated money")]
    columns = (
        *(Column(name) for name in by.split(",")),
        *((Column("simulated", align="right"),) if sandbox else ()),
        *(() if sandbox else (Column("cash", align="right"), Column("amortised", 2, align="right"))),
        Column("held", 1, align="right"),
        Column("bought", 7, align="right"),
        Column("rented", 8, align="right"),
        Column("GPU-hours", 3, align="right"),
        Column("machine-hours", 6, align="right"),
        Column("attempts", 5, align="right"),
        Column("jobs", 4, align="right"),
    )

    def cells(row: SpendRow) -> list[str | Text]:
        kinds = [row.sandbox] if sandbox else [row.cash, row.amortised]
        return [
            *row.values,
            *(formats.money(amount) for amount in (*kinds, row.held, row.bought, row.rented)),
            f"{row.gpu_hours:,.2f}",
            f"{row.machine_hours:,.2f}",
            f"{row.attempts:,}",
            f"{row.jobs:,}",
        ]

    total = sum((row.sandbox if sandbox else row.cash for row in rows), Money.ZERO)
    footer = f"total {formats.money(total)} {'simulated' if sandbox else 'cash'}"
    bought, rented = (sum(parts, Money.ZERO) for parts in zip(*((row.bought, row.rented) for row in rows), strict=True))
    footer += f"; {formats.money(bought)} on owned and reserved machines, {formats.money(rented)} rented"
    return fitted(terminal.out, columns, [cells(row) for row in rows], footer)
