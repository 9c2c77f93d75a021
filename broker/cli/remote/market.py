"""`gpubroker offers` through a team server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from broker.cli import completion
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.remote import through

EXAMPLES = examples("gpubroker offers --gpu H100:8", "gpubroker offers --provider aws --capacity-type spot --json")


@dataclass(frozen=True)
class OfferOptions:
    """Which offers are listed."""

    gpu: Annotated[
        list[str] | None,
        typer.Option("--gpu", "-g", autocompletion=completion.gpus, help="Only these: H100, H100:8, cpu. Repeatable."),
    ] = None
    provider: Annotated[list[str] | None, typer.Option("--provider", "-p", help="Only this provider. Repeatable.")] = (
        None
    )
    region: Annotated[list[str] | None, typer.Option("--region", "-r", help="Only this region. Repeatable.")] = None
    capacity_type: Annotated[
        list[str] | None, typer.Option("--capacity-type", "-t", help="spot, on_demand, reserved, owned. Repeatable.")
    ] = None
    available: Annotated[bool, typer.Option("--available", help="Only offers that are reported as available.")] = False
    live: Annotated[bool, typer.Option("--live", help="No reference, imported or stale prices.")] = False
    old: Annotated[bool, typer.Option("--old", help="Also reference prices of more than 180 days ago (spot: 60).")] = (
        False
    )
    offline: Annotated[
        bool, typer.Option("--offline", help="No effect with a server: its offers never query providers.")
    ] = False
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum rows.")] = 30


@gathered
def offers(context: typer.Context, given: OfferOptions, as_json: AsJson = False) -> None:
    """List the server's GPU offers, cheapest GPU-hour first."""
    from broker.cli.remote import view

    terminal, api = through(context)
    found = api.get(
        "/offers",
        gpu=given.gpu,
        provider=given.provider,
        region=given.region,
        capacity_type=[one.replace("-", "_") for one in given.capacity_type] if given.capacity_type else None,
        available=True if given.available else None,
        live=True if given.live else None,
        old=True if given.old else None,
        limit=min(given.limit, 200),
    )
    if as_json:
        terminal.answer(found)
    else:
        terminal.show(*view.offers(terminal.out, found["offers"], found["matching"]))
        if found.get("old_hidden"):  # absent from answers of earlier servers
            terminal.show(f"old reference prices that are not shown without --old: {found['old_hidden']:,}")
