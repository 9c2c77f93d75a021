"""`gpubroker prices accept`: accept offers that are in doubt."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.options import AsJson, Reason, examples
from broker.cli.terminal import Terminal

EXAMPLES = examples(
    "gpubroker prices accept runpod --reason 'their page lists these GPUs no longer'",
    "gpubroker prices accept vast --pool vast/US/offer-7/H100:8/spot --json",
)


def accept(
    context: typer.Context,
    provider: Annotated[str, typer.Argument(metavar="PROVIDER", help="Provider, as `prices status` names it.")],
    pool: Annotated[
        list[str] | None,
        typer.Option("--pool", help="Accept only this pool, as `offers --json` names it. Repeatable."),
    ] = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Accept a provider's suspect poll and its odd prices as correct.

    Offers missing from the last poll are then gone, and jobs may start on the odd prices. Check the provider's own page
    first: `gpubroker offers --where price_kind=doubted` lists what is in doubt. Your name is recorded. Exits with 2 if
    nothing is in doubt.
    """
    from broker.app.market.polling import accept_prices
    from broker.app.results.prices import AcceptedPrices
    from broker.cli.render.formats import plural

    terminal = Terminal.of(context)
    done = AcceptedPrices.of(accept_prices(terminal.broker(), provider, pool or (), by=terminal.actor, note=reason))
    missing, odd = plural(done.missing_removed, "missing offer"), plural(done.prices_believed, "odd price")
    terminal.result(done, lambda: [f"{provider}: {missing} removed and {odd} accepted by {done.accepted_by}."])
