"""`gpubroker prices poll`: poll providers now, concurrently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from broker.cli.options import AsJson, OnlyProviders, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from broker.app.wiring import Broker
    from broker.market.concurrent_poll import Watch

EXAMPLES = examples(
    "gpubroker prices poll", "gpubroker prices poll --provider sandbox --json", "gpubroker prices poll -p aws -p azure"
)


def poll(context: typer.Context, provider: OnlyProviders = None, as_json: AsJson = False) -> None:
    """Poll providers for their offers now, concurrently.

    A provider that fails or is slow does not delay the others and keeps its earlier offers. Ctrl-C stops the poll;
    the results of finished providers are stored. A poll that brings far fewer offers than expected is suspect: the
    missing ones are kept, and no job starts on them. Exits with 5 if a provider failed or is suspect, or if a provider
    named with --provider has no login.
    """
    from rich.text import Text

    from broker.app.market.polling import poll_now, providers_to_poll
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
    for those, what in (([name for name in failed if name not in suspect], "failed"), (suspect, "suspect")):
        if those:
            terminal.say(f"{len(those)} of {len(polls)} {what}: {', '.join(those)}")
    if failed:
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
