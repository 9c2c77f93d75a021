"""`gpubroker prices poll` and `accept`: poll providers, and accept what is in doubt; the first poll of new stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, OnlyProviders, Reason, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from broker.app.wiring import Broker
    from broker.cli.terminal import Terminal
    from broker.market.concurrent_poll import Watch
    from broker.market.poller import PollResult

EXAMPLES = examples(
    "gpubroker prices poll", "gpubroker prices poll --provider sandbox --json", "gpubroker prices poll -p aws -p azure"
)


def poll(
    context: typer.Context,
    provider: OnlyProviders = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if a provider did not answer, even if its prices are fresh.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Poll providers for their offers now, concurrently.

    A provider that fails or is slow does not delay the others and keeps its earlier offers. Ctrl-C stops the poll;
    the results of finished providers are stored. A poll that returns far fewer offers than expected is suspect: the
    missing ones are kept, and no job starts on them. Exits with 5 if a provider is suspect, if one failed whose prices
    are not fresh any more (with --strict: if any failed), or if one named with --provider has no login.
    """
    from rich.text import Text

    from broker.app.market.polling import fresh_providers, poll_now, providers_to_poll
    from broker.app.results.prices import PollOutcome, PollReport
    from broker.cli.prices.status import outcome

    terminal = Terminal.of(context)
    broker = terminal.broker()
    names = providers_to_poll(broker, provider or ())
    polls: list[PollOutcome] = []
    interrupted = False
    try:
        with progress(terminal, broker, names) as watch:
            for result in poll_now(broker, names, watch=watch):
                polls.append(PollOutcome.of(result))
                if watch is None:
                    terminal.show(*outcome(polls[-1]))
    except KeyboardInterrupt:
        interrupted = True
    for one in polls if watch is not None else ():
        terminal.show(*outcome(one))
    for hint in dict.fromkeys(one.hint for one in polls if one.error and one.hint):
        terminal.show(Text(f"hint: {hint}", style="cyan"))
    done = {one.provider for one in polls}
    undone = [name for name in names if name not in done] if interrupted else []
    if as_json:
        terminal.answer(PollReport(polls=polls, interrupted=undone if interrupted else None))
    if interrupted:
        kept = f"stored: {', '.join(sorted(done))}" if done else "nothing was stored"
        terminal.say(f"Stopped; {kept}. Incomplete and not stored: {', '.join(undone) or 'none'}.")
        raise typer.Exit(130)
    suspect = [one.provider for one in polls if one.status == "suspect"]
    failed = [one.provider for one in polls if one.failed or (provider and not one.status.is_success)]
    fresh = set() if strict else fresh_providers(broker, [one.provider for one in polls if one.status == "failed"])
    for those, what in (([name for name in failed if name not in suspect], "failed"), (suspect, "suspect")):
        if those:
            terminal.say(f"{len(those)} of {len(polls)} {what}: {', '.join(those)}")
    if fresh:
        terminal.say(f"Their prices of before are still fresh enough: {', '.join(sorted(fresh))}")
    if set(failed) - fresh:
        raise typer.Exit(5)


@contextmanager
def progress(terminal: Terminal, broker: Broker, names: Sequence[str]) -> Iterator[Watch | None]:
    """On a terminal, a progress bar per provider, scaled to its previous number of offers."""
    if not terminal.err.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from broker.market.poller import PollSession

    last = broker.store.last_polls()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20))
    counted = TextColumn("{task.completed:,} offers", justify="right")
    bars = Progress(*columns, counted, TimeElapsedColumn(), console=terminal.err, transient=True, redirect_stdout=False)
    tasks = {name: bars.add_task(name, total=(last[name].seen or None) if name in last else None) for name in names}

    def watch(waiting: Sequence[PollSession]) -> None:
        for hearing in waiting:
            bars.update(tasks[hearing.name], completed=hearing.arrived)
        for name in names:
            if name not in {hearing.name for hearing in waiting}:
                arrived = bars.tasks[tasks[name]].completed
                bars.update(tasks[name], total=arrived or 1, completed=arrived or 1, visible=False)

    with bars:
        yield watch


Offline = Annotated[
    bool,
    typer.Option(
        "--offline",
        help="Ask no provider first. Without it, the first use asks those that need no login, for a few seconds.",
    ),
]


def first_look(terminal: Terminal, broker: Broker, *, offline: bool, providers: Sequence[str] = ()) -> None:
    """Before prices are shown for the first time, poll the sources that need no login and answer within seconds, and
    print a summary. ``offline``: send no request. ``providers``: the requested ones; if all are local, no
    request is sent."""
    from broker.app.market.polling import has_network, look, sources_to_ask, tell_no_network
    from broker.core.market.offers import SANDBOX

    local = bool(providers) and {*providers} <= {*broker.registries.local_providers, SANDBOX}
    names = () if offline or local else sources_to_ask(broker)
    if not names:
        return
    if not has_network(terminal.environment):
        if tell_no_network(broker):
            terminal.say("No network: showing bundled list prices; see the age column. --offline asks nobody.")
        return
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
            f"No live prices: {who} cannot be reached (is there a network?). Showing bundled list prices; "
            f"see the age column. `{more}` asks again, --offline asks nobody."
        )
    offers = sum(result.offers_seen for result in told)
    missing = f" No answer from {', '.join(silent)}." if silent else ""
    return (
        f"First look at the market: {offers:,} live offers of {', '.join(one.provider for one in told)}.{missing} "
        f"`{more}` asks all providers; `gpubroker doctor` lists the logins that add more."
    )


ACCEPT_EXAMPLES = examples(
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
