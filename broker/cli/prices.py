"""`gpubroker prices`: asking providers, and how fresh their answers are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from broker.market.poller import PollResult

app = typer.Typer(no_args_is_help=True, help="Ask providers for prices, and see how fresh their answers are.")


@app.command(epilog=examples("gpubroker prices poll", "gpubroker prices poll --provider sandbox --json"))
def poll(
    context: typer.Context,
    provider: Annotated[
        list[str] | None, typer.Option("--provider", "-p", help="Only this one; all but the sandbox by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask providers for their offers now. One that fails keeps what it had; exits with 5 when any failed, or one that
    was named has no login."""
    from broker.app.market import poll_now

    terminal = Terminal.of(context)
    broker = terminal.broker()
    results = []
    for result in poll_now(broker, provider or []):
        results.append(result)
        if not as_json:
            terminal.show(*_told(result))
    if as_json:
        terminal.answer({"polls": [_poll_json(result) for result in results]})
    if not all(result.ok or (result.no_login and not provider) for result in results):
        raise typer.Exit(5)


def _told(result: PollResult) -> list[Any]:
    from rich.text import Text

    from broker.cli import words

    took = words.length(result.finished - result.started)
    counts = f"{words.plural(result.offers_seen, 'offer')}, {result.offers_changed:,} changed, {took}"
    skipped = sum(result.rows_skipped.values())
    if skipped:
        why = ", ".join(f"{count} × {reason}" for reason, count in result.rows_skipped.items())
        counts += f"; {words.plural(skipped, 'row')} skipped ({why})"
    lines = [Text.assemble((f"{result.provider}: ", "bold"), counts)]
    if result.error:
        lines.append(Text(f"  {result.error}", style="dim" if result.no_login else "red"))
        if result.hint:
            lines.append(Text(f"  hint: {result.hint}", style="cyan"))
    return lines


def _poll_json(result: PollResult) -> dict[str, Any]:
    return {
        "provider": result.provider,
        "status": "ok" if result.ok else "no_login" if result.no_login else "failed",
        "started": result.started,
        "finished": result.finished,
        "seconds": result.finished - result.started,
        "offers_seen": result.offers_seen,
        "offers_changed": result.offers_changed,
        "rows_skipped": dict(result.rows_skipped),
        "error": result.error,
        "hint": result.hint,
    }


@app.command(epilog=examples("gpubroker prices status", "gpubroker prices status --json"))
def status(context: typer.Context, as_json: AsJson = False) -> None:
    """The last poll of each provider: when, how many offers, what went wrong."""
    terminal = Terminal.of(context)
    broker = terminal.broker()
    runs, now = broker.store.last_polls(), broker.clock.now()
    if as_json:
        documents = [
            {
                "provider": run.provider,
                "status": "failed" if run.error else "ok",
                "finished": run.finished,
                "age_seconds": now - run.finished,
                "seconds": run.finished - run.started,
                "offers_seen": run.seen,
                "offers_changed": run.changed,
                "complete": run.complete,
                "rows_skipped": dict(run.skipped),
                "error": run.error,
            }
            for run in runs.values()
        ]
        never = sorted(set(broker.registries.providers) - set(runs))
        terminal.answer({"providers": documents, "never_polled": never})
        return
    from rich.text import Text

    from broker.cli import words
    from broker.cli.tables import Column, fitting

    columns = (
        Column("provider"),
        Column("last asked", align="right"),
        Column("offers", align="right"),
        Column("changed", 2, align="right"),
        Column("skipped", 3, align="right"),
        Column("error", folds=True),
    )
    cells: list[list[str | Text]] = [
        [
            run.provider,
            f"{words.age(now - run.finished)} ago",
            f"{run.seen:,}",
            f"{run.changed:,}",
            f"{sum(run.skipped.values()):,}",
            Text(run.error, style="red"),
        ]
        for run in runs.values()
    ]
    never = sorted(set(broker.registries.providers) - set(runs))
    if cells:
        terminal.show(fitting(terminal.out, columns, cells)[0])
    if never:
        terminal.show(Text(f"never asked: {', '.join(never)}", style="dim"))
