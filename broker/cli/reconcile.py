"""`gpubroker reconcile`: the background process that looks after running jobs. Other commands start it."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

EXAMPLES = examples("gpubroker reconcile", "gpubroker reconcile --forever")
HIDDEN = True  # people have no need of it


def reconcile(
    context: typer.Context,
    forever: Annotated[bool, typer.Option("--forever", help="Go on when nothing is left to do.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look after running jobs until nothing is left to do. One process per store; a second one goes away at once."""
    from broker.app.background import log_to_file, run

    terminal = Terminal.of(context)
    broker = terminal.broker(look_after=False)
    log_to_file(broker.settings.home)
    did = run(broker, forever=forever)
    if as_json:
        terminal.answer({"reconciled": did, "log": broker.settings.home / "reconciler.log"})
    elif not did:
        terminal.say("another process reconciles this store already")
