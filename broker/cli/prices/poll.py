"""`gpubroker prices poll` and `accept`: poll providers, and accept what is in doubt; the first poll of new stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from broker.cli.options import AsJson, OnlyProviders, Reason, examples
from broker.cli.prices.status import poll_outcome_lines
from broker.cli.render.formats import plural
from broker.cli.terminal import Terminal
from broker.core.values.provider_names import provider_name

if TYPE_CHECKING:
    from broker.app.wiring import Broker
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
    from broker.app.market.polling import fresh_providers, poll_now, providers_to_poll
    from broker.app.market.price_documents import PollOutcome, PollReport

    terminal = Terminal.of(context)
    broker = terminal.broker()
    names = providers_to_poll(broker, provider or ())
    polls: list[PollOutcome] = []
    interrupted = False
    try:
        with poll_progress(terminal, broker, names) as watch:
            for result in poll_now(broker, names, watch=watch):
                polls.append(PollOutcome.of(result))
                if watch is None:
                    terminal.show(*poll_outcome_lines(polls[-1]))
    except KeyboardInterrupt:
        interrupted = True
    for poll_outcome in polls if watch is not None else ():
        terminal.show(*poll_outcome_lines(poll_outcome))
    for hint in dict.fromkeys(poll_outcome.hint for poll_outcome in polls if poll_outcome.error and poll_outcome.hint):
        terminal.show(Text(f"hint: {hint}", style="cyan"))
    finished = {poll_outcome.provider for poll_outcome in polls}
    unfinished = [name for name in names if name not in finished] if interrupted else []
    if as_json:
        terminal.answer(PollReport(polls=polls, interrupted=unfinished if interrupted else None))
    if interrupted:
        stored_text = f"stored: {', '.join(sorted(finished))}" if finished else "nothing was stored"
        terminal.say(f"Stopped; {stored_text}. Incomplete and not stored: {', '.join(unfinished) or 'none'}.")
        raise typer.Exit(130)
    suspect_providers = [poll_outcome.provider for poll_outcome in polls if poll_outcome.status == "suspect"]
    failed_providers = [
        poll_outcome.provider
        for poll_outcome in polls
        if poll_outcome.failed or (provider and not poll_outcome.status.is_success)
    ]
    fresh = (
        set()
        if strict
        else fresh_providers(
            broker, [poll_outcome.provider for poll_outcome in polls if poll_outcome.status == "failed"]
        )
    )
    for provider_names, problem in (
        ([name for name in failed_providers if name not in suspect_providers], "failed"),
        (suspect_providers, "suspect"),
    ):
        if provider_names:
            terminal.say(f"{len(provider_names)} of {len(polls)} {problem}: {', '.join(provider_names)}")
    if fresh:
        terminal.say(f"Their prices of before are still fresh enough: {', '.join(sorted(fresh))}")
    if set(failed_providers) - fresh:
        raise typer.Exit(5)


@contextmanager
def poll_progress(terminal: Terminal, broker: Broker, names: Sequence[str]) -> Iterator[Watch | None]:
    """On a terminal, a progress bar per provider, scaled to its previous number of offers."""
    if not terminal.err.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from broker.market.poller import PollSession

    last_polls = broker.store.last_polls()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20))
    offer_count_column = TextColumn("{task.completed:,} offers", justify="right")
    bars = Progress(
        *columns, offer_count_column, TimeElapsedColumn(), console=terminal.err, transient=True, redirect_stdout=False
    )
    tasks = {
        name: bars.add_task(name, total=(last_polls[name].seen or None) if name in last_polls else None)
        for name in names
    }

    def watch(sessions: Sequence[PollSession]) -> None:
        for session in sessions:
            bars.update(tasks[session.name], completed=session.arrived)
        for name in names:
            if name not in {session.name for session in sessions}:
                offer_count = bars.tasks[tasks[name]].completed
                bars.update(tasks[name], total=offer_count or 1, completed=offer_count or 1, visible=False)

    with bars:
        yield watch


Offline = Annotated[
    bool,
    typer.Option(
        "--offline",
        help="Do not query providers. Otherwise, the first use queries those without a login, in seconds.",
    ),
]


def poll_first_time(terminal: Terminal, broker: Broker, *, offline: bool, providers: Sequence[str] = ()) -> None:
    """Before prices are shown for the first time, poll the sources that need no login and answer within seconds, and
    print a summary. ``offline``: send no request. ``providers``: the requested ones; if all are local, no
    request is sent."""
    from broker.app.market.polling import first_sources, has_network, poll_first_sources, tell_no_network
    from broker.core.market.offers import SANDBOX

    only_local = bool(providers) and {*providers} <= {*broker.registries.local_providers, SANDBOX}
    names = () if offline or only_local else first_sources(broker)
    if not names:
        return
    if not has_network(terminal.environment):
        if tell_no_network(broker):
            terminal.say("No network: showing bundled list prices; see the age column. --offline asks nobody.")
        return
    with poll_progress(terminal, broker, names) as watch:
        results = list(poll_first_sources(broker, names, watch=watch))
    if results:
        terminal.say(first_poll_text(results))


def first_poll_text(results: Sequence[PollResult]) -> str:
    """A summary of the first poll, in one or two sentences."""
    answered = [result for result in results if result.offers_seen]
    # A provider whose extra is not installed does not count as unreachable.
    unreachable = [
        poll_result.provider
        for poll_result in results
        if not poll_result.offers_seen and (poll_result.failed or poll_result.cut_short)
    ]
    poll_command = "gpubroker prices poll"
    if not answered and not unreachable:
        return f"No live prices: no queried provider has any. `{poll_command}` asks all providers."
    if not answered:
        unreachable_names = ", ".join(unreachable)
        return (
            f"No live prices: {unreachable_names} cannot be reached (is there a network?). Showing bundled list "
            "prices; "
            f"see the age column. `{poll_command}` asks again, --offline asks nobody."
        )
    offers = sum(result.offers_seen for result in answered)
    missing = f" No answer from {', '.join(unreachable)}." if unreachable else ""
    return (
        f"First look at the market: {offers:,} live offers of "
        f"{', '.join(poll_result.provider for poll_result in answered)}.{missing} "
        f"`{poll_command}` asks all providers; `gpubroker doctor` lists the logins that add more."
    )


ACCEPT_EXAMPLES = examples(
    "gpubroker prices accept runpod --reason 'their page lists these GPUs no longer'",
    "gpubroker prices accept vast --pool vast/US/offer-7/H100:8/spot --json",
)


def accept(
    context: typer.Context,
    provider: Annotated[
        str, typer.Argument(metavar="PROVIDER", parser=provider_name, help="As `prices status` names it.")
    ],
    pool: Annotated[
        list[str] | None,
        typer.Option("--pool", help="Accept only this pool, as `offers --json` names it. Repeatable."),
    ] = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Accept a provider's suspect poll and its odd prices as correct.

    Offers missing from the last poll are then gone, and jobs may start on the odd prices. Check the provider's own page
    first: `gpubroker offers --where price_kind=suspicious` lists what is in doubt. Your name is recorded. Exits with 2
    if nothing is in doubt.
    """
    from broker.app.market.polling import accept_prices

    terminal = Terminal.of(context)
    accepted = accept_prices(terminal.broker(), provider, pool or (), by=terminal.actor, note=reason)
    missing_offers, odd_prices = (
        plural(accepted.missing_removed, "missing offer"),
        plural(accepted.prices_believed, "odd price"),
    )
    terminal.result(
        accepted, lambda: [f"{provider}: {missing_offers} removed and {odd_prices} accepted by {accepted.accepted_by}."]
    )
