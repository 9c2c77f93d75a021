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
    from broker.app.alerts.notices import notice_list

    terminal = Terminal.of(context)
    found = notice_list(terminal.broker(), failed=failed, limit=limit)
    empty_text = "everything was delivered" if failed else "no alerts were sent yet"
    terminal.result(found, lambda: map(notice_text, found.notices) if found.notices else [empty_text])


@app.command(epilog=examples("gpubroker notices retry", "gpubroker notices retry --json"))
def retry(context: typer.Context, as_json: AsJson = False) -> None:
    """Send undelivered alerts again, also those that were given up. Exits with 5 if a delivery failed."""
    from broker.app.alerts.notices import retry_failed as retried
    from broker.cli.render import formats

    terminal = Terminal.of(context)
    retry_result = retried(terminal.broker())
    failure_texts = [
        f"not yet sent to {target} ({reason}), will be retried" for target, reason in retry_result.errors.items()
    ]
    summary = f"{formats.plural(retry_result.retried, 'alert')} to try again; {retry_result.sent} sent"
    terminal.result(retry_result, lambda: [summary, *failure_texts])
    if retry_result.errors:
        raise typer.Exit(5)


def notice_text(notice: NoticeResult) -> str:
    """The delivery state of one alert to one recipient."""
    if notice.delivered_at is not None:
        return f"sent to {notice.target} on {formats.moment(notice.delivered_at)}: {notice.title}"
    if notice.next_try is None:
        return f"never sent to {notice.target}: {notice.title} ({notice.error})"
    error_note = f" ({notice.error})" if notice.error else ""
    return f"not yet sent to {notice.target}, tried {formats.plural(notice.tries, 'time')}{error_note}: {notice.title}"


def deliveries_text(made_deliveries: Iterable[Delivery]) -> str:
    """The deliveries just made: ``sent to ops``; ``not yet sent to ops (…), will be retried``."""
    return "; ".join(
        f"not yet sent to {delivery.target} ({delivery.error}), will be retried"
        if delivery.error
        else f"sent to {delivery.target}"
        for delivery in made_deliveries
    )
