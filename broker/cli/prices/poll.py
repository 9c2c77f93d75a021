"""`gpubroker prices poll`: poll providers now, concurrently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from broker.cli.options import AsJson, OnlyProviders, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.text import Text

    from broker.app.wiring import Broker
    from broker.market.concurrent_poll import Watch
    from broker.market.poller import PollResult

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

    terminal = Terminal.of(context)
    broker = terminal.broker()
    names = providers_to_poll(broker, provider or ())
    results: list[PollResult] = []
    interrupted = False
    try:
        with progress(terminal, broker, names) as watch:
            for result in poll_now(broker, names, watch=watch):
                results.append(result)
                if watch is None:
                    terminal.show(*outcome(result))
    except KeyboardInterrupt:
        interrupted = True
    if watch is not None:
        for result in results:
            terminal.show(*outcome(result))
    for hint in dict.fromkeys(result.hint for result in results if result.error and result.hint):
        terminal.show(Text(f"hint: {hint}", style="cyan"))
    done = {result.provider for result in results}
    undone = [name for name in names if name not in done] if interrupted else []
    if as_json:
        from broker.app.results.prices import PollOutcome, PollReport

        polls = [PollOutcome.of(result) for result in results]
        terminal.answer(PollReport(polls=polls, interrupted=undone if interrupted else None))
    if interrupted:
        kept = f"stored: {', '.join(sorted(done))}" if done else "nothing was stored"
        terminal.say(f"Stopped; {kept}. Incomplete and not stored: {', '.join(undone) or 'none'}.")
        raise typer.Exit(130)
    suspect = [result.provider for result in results if result.status == "suspect"]
    failed = [result.provider for result in results if result.failed or (provider and not result.ok)]
    for those, what in (([name for name in failed if name not in suspect], "failed"), (suspect, "suspect")):
        if those:
            terminal.say(f"{len(those)} of {len(results)} {what}: {', '.join(those)}")
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


# Shown for a provider that returned no offers.
NOT_ASKED = {"login_missing": "no login", "login_refused": "login refused", "extra_missing": "not installed"}


def told(result: PollResult) -> list[Text]:
    """The result of one poll as text, with its hint."""
    from rich.text import Text

    hint = [Text(f"  hint: {result.hint}", style="cyan")] if result.error and result.hint else []
    return [*outcome(result), *hint]


def outcome(result: PollResult) -> list[Text]:
    """The result of one poll as text, without its hint, which several providers often share."""
    from rich.text import Text

    from broker.cli.render import formats

    if result.status in NOT_ASKED and not result.offers_seen:
        counts = NOT_ASKED[result.status]
    else:
        took = formats.length(result.finished - result.started)
        counts = f"{formats.plural(result.offers_seen, 'offer')}, {result.offers_changed:,} changed, {took}"
        if result.traffic.bytes:
            kilobytes = result.traffic.bytes / 1e3
            counts += f", {kilobytes:,.0f} kB read" if kilobytes < 1000 else f", {kilobytes / 1e3:,.1f} MB read"
    skipped = sum(result.rows_skipped.values())
    if skipped:
        why = ", ".join(f"{count} × {reason}" for reason, count in result.rows_skipped.items())
        counts += f"; {formats.plural(skipped, 'row')} skipped ({why})"
    lines = [Text.assemble((f"{result.provider}: ", "bold"), counts)]
    if result.error:
        style = "red" if result.failed else "dim"
        lines += [Text(f"  {failure}", style=style) for failure in failures(result.provider, result.error)]
    return lines


def failures(provider: str, error: str) -> list[str]:
    """The failures, one line each: a provider may fail in several parts (regions, clouds)."""
    return [line.removeprefix(f"{provider}: ") for line in error.splitlines()]
