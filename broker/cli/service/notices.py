"""`gpubroker notices`: alerts and their delivery."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.prices.watch import delivery_text, notice_text
from broker.cli.render import formats
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

EXAMPLES = examples(
    "gpubroker notices", "gpubroker notices --failed", "gpubroker notices --retry", "gpubroker notices ops --test"
)


def notices(
    context: typer.Context,
    recipient: Annotated[
        list[str] | None,
        typer.Argument(metavar="RECIPIENT...", help="With --test: only these, as in the settings."),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only alerts that are undelivered or abandoned.")] = False,
    retry: Annotated[
        bool, typer.Option("--retry", help="Send undelivered alerts again, also those that were given up.")
    ] = False,
    test: Annotated[bool, typer.Option("--test", help="Send a test alert and report its delivery.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=10_000, help="Maximum number of rows, newest first.")
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """List alerts by recipient: sent, waiting, or failed and why. With --retry or --test, send alerts.

    Recipients are `GPUBROKER_NOTIFY__NAME`; `\\[routes.NAME]` in gpubroker.toml says what each is told:
    `teams`, `at_least`. Exits with 5 if a delivery failed.
    """
    from broker.app.alerts.notify import notice_list

    terminal = Terminal.of(context)
    if failed + retry + test > 1:
        raise InvalidInput("--failed, --retry and --test cannot be combined")
    if recipient and not test:
        raise InvalidInput("recipients belong to --test", hint=f"gpubroker notices {' '.join(recipient)} --test")
    if test:
        _send_test(terminal, recipient or [])
    elif retry:
        _retry(terminal)
    else:
        alerts = notice_list(terminal.broker(), failed=failed, limit=limit)
        empty_text = "everything was delivered" if failed else "no alerts were sent yet"
        terminal.result(alerts, lambda: map(notice_text, alerts.notices) if alerts.notices else [empty_text])


def _retry(terminal: Terminal) -> None:
    from broker.app.alerts.notify import retry_failed

    retry_result = retry_failed(terminal.broker())
    failure_texts = [
        f"not yet sent to {target} ({reason}), will be retried" for target, reason in retry_result.errors.items()
    ]
    summary = f"{formats.plural(retry_result.retried, 'alert')} to try again; {retry_result.sent} sent"
    terminal.result(retry_result, lambda: [summary, *failure_texts])
    if retry_result.errors:
        raise typer.Exit(5)


def _send_test(terminal: Terminal, recipients: list[str]) -> None:
    from broker.app.alerts.notify import send_test
    from broker.app.market.watches import AlertTest

    targets = terminal.broker().settings.notify
    test_result = AlertTest.of(send_test(targets, [name.lower() for name in recipients]), targets)
    terminal.result(test_result, lambda: map(delivery_text, test_result.deliveries))
    if not all(tested_delivery.ok for tested_delivery in test_result.deliveries):
        raise typer.Exit(5)
