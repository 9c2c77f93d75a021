"""`gpubroker prices`: poll providers; age, history, import and deletion of prices; watches."""

import typer

from broker.cli.lazy import lazy_group

COMMANDS = {
    "poll": "broker.cli.prices.poll:poll",
    "accept": "broker.cli.prices.poll:accept",
    "status": "broker.cli.prices.status:status",
    "prune": "broker.cli.prices.history:prune",
    "history": "broker.cli.prices.history:history",
    "export": "broker.cli.prices.history:export",
    "import": "broker.cli.prices.history:import_",
    "watch": "broker.cli.prices.watch:app",
}

app = typer.Typer(cls=lazy_group({"Commands": COMMANDS}), no_args_is_help=True)


@app.callback()
def prices() -> None:
    """Poll provider prices, show their age and history, accept odd ones, and watch them for changes."""
