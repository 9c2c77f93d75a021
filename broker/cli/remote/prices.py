"""`gpubroker prices` through a team server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from broker.cli import filters
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.prices.status import EXAMPLES as STATUS_EXAMPLES
from broker.cli.prices.status import status
from broker.cli.remote import group_of, through
from broker.cli.remote.tables import DocumentColumn, number, price, share, table, text

app = typer.Typer(
    cls=group_of("broker.cli.prices.prices:app"), no_args_is_help=True, help="Recorded prices of the server."
)


@app.callback()
def prices() -> None:
    """Recorded prices of the server."""


@dataclass(frozen=True)
class SeriesOptions:
    """Which series are shown, and of which period."""

    gpu: filters.Gpus = None
    provider: filters.Providers = None
    region: filters.Regions = None
    capacity_type: filters.CapacityTypes = None
    start: Annotated[
        str | None,
        typer.Option("--since", "--from", metavar="WHEN", help="Start: 2026-11-01, or 7d (ago). Default: 30d."),
    ] = None
    end: Annotated[
        str | None, typer.Option("--until", "--to", metavar="WHEN", help="End of the period. Default: now.")
    ] = None
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="Maximum rows.")] = 30


@app.command(
    epilog=examples("gpubroker prices history --gpu H100:8", "gpubroker prices history -g A100 -c spot --json")
)
@gathered
def history(context: typer.Context, given: SeriesOptions, as_json: AsJson = False) -> None:
    """Show how prices changed: one row per series, cheapest first."""
    terminal, api = through(context)
    now = datetime.now(UTC)
    found = api.get(
        "/prices/history",
        gpu=given.gpu,
        provider=given.provider,
        region=given.region,
        capacity_type=[one.value for one in filters.capacity_types(given.capacity_type or [])] or None,
        since=filters.moment("--since", given.start, now).isoformat() if given.start else None,
        until=filters.moment("--until", given.end, now).isoformat() if given.end else None,
        limit=given.limit,
    )
    if as_json:
        terminal.answer(found)
        return
    columns = (
        DocumentColumn("gpu", lambda row: f"{row['accelerator']}:{row['count']}" if row["accelerator"] else "cpu"),
        text("capacity_type"), text("provider"), text("region", rank=2), text("instance_type", "machine", 4),
        price("first_price_per_hour", "first", 3), price("last_price_per_hour", "last"),
        price("lowest_price_per_hour", "lowest", 1), price("highest_price_per_hour", "highest", 1),
        number("price_changes", "changes", 2), share("available_part", "available", 3),
    )  # fmt: skip
    footer = f"{len(found['series'])} of {found['matching']} series"
    terminal.show(*table(terminal.out, columns, found["series"], "no price is recorded for this", footer))


app.command("status", epilog=STATUS_EXAMPLES)(status)
