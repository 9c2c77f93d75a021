"""`gpubroker reconcile`: the background process that reconciles running jobs. Other commands start it."""

from typing import Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

EXAMPLES = examples("gpubroker reconcile", "gpubroker reconcile --forever")
HIDDEN = ("reconcile",)  # users do not need it


def reconcile(
    context: typer.Context,
    forever: Annotated[bool, typer.Option("--forever", help="Keep running when no job is left.")] = False,
    as_json: AsJson = False,
) -> None:
    """Reconcile running jobs until none is left. Only one process per store runs; a second one exits at once."""
    from broker.app.service.passes import log_to_file, run

    terminal = Terminal.of(context)
    broker = terminal.broker(look_after=False)
    log_to_file(broker.settings.home)
    has_reconciled = run(broker, forever=forever)
    if as_json:
        from broker.app.service.documents import ReconcileReport

        terminal.answer(ReconcileReport(reconciled=has_reconciled, log=broker.settings.home / "reconciler.log"))
    elif not has_reconciled:
        terminal.say("another process already reconciles this store")
