"""`gpubroker prices`: asking providers, how fresh their answers are, how prices moved, and what to keep of them."""

from __future__ import annotations

import typer

from broker.cli.lazy import lazy_group

COMMANDS = {
    "poll": "broker.cli.prices_poll:poll",
    "status": "broker.cli.prices_status:status",
    "prune": "broker.cli.prices_prune:prune",
    "history": "broker.cli.prices_history:history",
    "import": "broker.cli.prices_import:import_",
    "watch": "broker.cli.prices_watch:app",
}

app = typer.Typer(cls=lazy_group(COMMANDS), no_args_is_help=True)


@app.callback()
def prices() -> None:
    """Ask providers for prices, and see how fresh their answers are and how they moved."""
