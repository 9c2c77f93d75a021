"""`gpubroker notices`: alerts and their delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.render import formats
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.app.alerts.notify import Delivery
    from broker.app.results.notices import NoticeResult

app = typer.Typer(no_args_is_help=True, help="List alerts and their delivery, and retry what failed.")


@app.callback()
def notices() -> None:
    """List alerts and their delivery, and retry what failed.

    Recipients are `GPUBROKER_NOTIFY__NAME`; `[routes.NAME]` in gpubroker.toml says what each is told:
    `teams`, `at_least`.
    """


@app.command(
    "list",
    epilog=examples(
        "gpubroker notices list", "gpubroker notices list --failed", "gpubroker notices list --limit 20 --json"
    ),
)
def list_(
    context: typer.Context,
    failed: Annotated[bool, typer.Option("--failed", help="Only alerts that are undelivered or abandoned.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum rows, newest first.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List alerts by recipient: sent, waiting, or failed and why."""
    from broker.app.alerts.sent import sent

    terminal = Terminal.of(context)
    found = sent(terminal.broker(), failed=failed, limit=limit)
    nothing = "everything was delivered" if failed else "no alerts were sent yet"
    terminal.result(found, lambda: map(dispatch, found.notices) if found.notices else [nothing])


@app.command(epilog=examples("gpubroker notices retry", "gpubroker notices retry --json"))
def retry(context: typer.Context, as_json: AsJson = False) -> None:
    """Send undelivered alerts again, also those that were given up. Exits with 5 if a delivery failed."""
    from broker.app.alerts.sent import retry as retried
    from broker.cli.render import formats

    terminal = Terminal.of(context)
    done = retried(terminal.broker())
    failed = [f"not yet sent to {target} ({why}), will be retried" for target, why in done.errors.items()]
    tried = f"{formats.plural(done.retried, 'alert')} to try again; {done.sent} sent"
    terminal.result(done, lambda: [tried, *failed])
    if done.errors:
        raise typer.Exit(5)


def dispatch(one: NoticeResult) -> str:
    """The delivery state of one alert to one recipient."""
    if one.delivered_at is not None:
        return f"sent to {one.target} on {formats.moment(one.delivered_at)}: {one.title}"
    if one.next_try is None:
        return f"never sent to {one.target}: {one.title} ({one.error})"
    why = f" ({one.error})" if one.error else ""
    return f"not yet sent to {one.target}, tried {formats.plural(one.tries, 'time')}{why}: {one.title}"


def deliveries(sent: Iterable[Delivery]) -> str:
    """The deliveries just made: ``sent to ops``; ``not yet sent to ops (…), will be retried``."""
    return "; ".join(
        f"not yet sent to {one.target} ({one.error}), will be retried" if one.error else f"sent to {one.target}"
        for one in sent
    )
