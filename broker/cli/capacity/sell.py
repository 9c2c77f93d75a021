"""`gpubroker capacity sell`: selling on the provider's resale market what was bought."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

_Id = Annotated[str, typer.Argument(metavar="PURCHASE", help="ID in `gpubroker capacity purchases`.")]


def register(app: typer.Typer) -> None:
    """Add the command to `gpubroker capacity`."""
    app.command(
        "sell",
        epilog=examples(
            "gpubroker capacity sell purchase-0123456789ab --dry-run",
            "gpubroker capacity sell purchase-0123456789ab --least 1500",
            "gpubroker capacity sell purchase-0123456789ab --stop",
        ),
    )(sell)


def sell(
    context: typer.Context,
    id: _Id,
    least: Annotated[
        str | None,
        typer.Option("--least", metavar="USD", help="Price of all machines for the rest of the time, before fees."),
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Withdraw the offer.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what it may bring; change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Sell a purchase on its provider's resale market: a block at SF Compute, a standard reserved instance at AWS.

    Jobs leave what is for sale, and none starts in it. The money comes back to the budget of the month in which
    somebody buys it. Other providers have no such market; the refusal says what can be done instead.
    """
    from broker.app.capacity import selling
    from broker.app.results.purchases import PurchaseResult, ResaleTermsResult
    from broker.cli import filters
    from broker.cli.capacity import purchases_view

    terminal = Terminal.of(context)
    if dry_run:
        terms = selling.resale_terms(terminal.broker(), id)
        if as_json:
            terminal.answer(ResaleTermsResult.of(id, terms))
        else:
            terminal.show(*purchases_view.resale(id, terms))
        return
    if stop:
        changed = selling.end_sale(terminal.broker(), id, by=terminal.actor)
    elif least is None:
        raise InvalidInput("the price is missing", where="--least", hint=f"gpubroker capacity sell {id} --dry-run")
    else:
        changed = selling.sell(terminal.broker(), id, least=filters.price("--least", least), by=terminal.actor)
    if as_json:
        terminal.answer(PurchaseResult.of(changed))
    else:
        terminal.show(*purchases_view.purchase(changed))
