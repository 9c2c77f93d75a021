"""`gpubroker prices`: asking providers, how fresh their answers are, and what to keep of them."""

from __future__ import annotations

import typer

from broker.cli import prices_poll, prices_prune, prices_status

app = typer.Typer(no_args_is_help=True, help="Ask providers for prices, and see how fresh their answers are.")
app.command("poll", epilog=prices_poll.EXAMPLES)(prices_poll.poll)
app.command("status", epilog=prices_status.EXAMPLES)(prices_status.status)
app.command("prune", epilog=prices_prune.EXAMPLES)(prices_prune.prune)
