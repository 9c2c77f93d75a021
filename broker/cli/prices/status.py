"""`gpubroker prices status`: the age of each provider's prices, and poll failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from broker.app.results.prices import PriceStatus

EXAMPLES = examples("gpubroker prices status", "gpubroker prices status --skipped", "gpubroker prices status --json")


def status(
    context: typer.Context,
    skipped: Annotated[
        bool, typer.Option("--skipped", help="Show the rows that the last polls could not use, by reason.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the age of each provider's prices: last poll, last successful poll, errors, and the number of stale offers
    (too old to plan with) and doubted offers (not used until accepted)."""
    from broker.cli.prices import status_view

    terminal = Terminal.of(context)
    found = _found(terminal)
    terminal.result(
        found, lambda: status_view.skipped_rows(found) if skipped else status_view.table(terminal.out, found)
    )


def _found(terminal: Terminal) -> PriceStatus:
    from broker.app.results.prices import PriceStatus

    if terminal.through_server:
        return terminal.api.fetch(PriceStatus, "/prices/status")
    from broker.app.market.polling import is_scheduled, statuses

    broker = terminal.broker()
    now = broker.clock.now()
    return PriceStatus.of(statuses(broker, now), now, scheduled=is_scheduled(broker))
