"""The first poll of providers before prices are shown, with its progress and a summary, on stderr."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from broker.app.wiring import Broker
    from broker.cli.terminal import Terminal
    from broker.market.poller import PollResult

Offline = Annotated[
    bool,
    typer.Option(
        "--offline",
        help="Ask no provider first. Without it, the first use asks those that need no login, for a few seconds.",
    ),
]


def first_look(terminal: Terminal, broker: Broker, *, offline: bool, providers: Sequence[str] = ()) -> None:
    """Before prices are shown for the first time, poll the sources that need no login and answer within seconds, and
    print a summary. ``offline``: send no request. ``providers``: those whose prices are wanted; if all are local, no
    request is sent."""
    from broker.app.market.polling import look, sources_to_ask
    from broker.core.market.offers import SANDBOX

    local = bool(providers) and {*providers} <= {*broker.registries.local_providers, SANDBOX}
    names = () if offline or local else sources_to_ask(broker)
    if not names:
        return
    from broker.cli.prices.poll import progress

    with progress(terminal, broker, names) as watch:
        results = list(look(broker, names, watch=watch))
    if results:
        terminal.say(in_words(results))


def in_words(results: Sequence[PollResult]) -> str:
    """A summary of the first poll, in one or two sentences."""
    told = [result for result in results if result.offers_seen]
    # A provider whose extra is not installed does not count as unreachable.
    silent = [one.provider for one in results if not one.offers_seen and (one.failed or one.cut_short)]
    more = "gpubroker prices poll"
    if not told and not silent:
        return f"No live prices: no queried provider has any. `{more}` asks all providers."
    if not told:
        who = ", ".join(silent)
        return (
            f"No live prices: {who} cannot be reached (is there a network?). What follows are list prices of their "
            f"date; `{more}` asks again, --offline asks nobody."
        )
    offers = sum(result.offers_seen for result in told)
    missing = f" No answer from {', '.join(silent)}." if silent else ""
    return (
        f"First look at the market: {offers:,} live offers of {', '.join(one.provider for one in told)}.{missing} "
        f"`{more}` asks all providers; `gpubroker doctor` lists the logins that add more."
    )
