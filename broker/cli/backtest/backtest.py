"""`gpubroker backtest`: cost of the broker's strategies on recorded data. One module per command."""

from __future__ import annotations

import typer

from broker.cli.backtest import placement, reserve

app = typer.Typer(
    no_args_is_help=True,
    help="Compute what strategies would have cost on recorded data, compared with the optimum.",
)


@app.callback()
def backtest() -> None:
    """Compute what strategies would have cost on recorded data, compared with the optimum."""


app.command("placement", epilog=placement.EXAMPLES)(placement.placement)
app.command("reserve", epilog=reserve.EXAMPLES)(reserve.reserve)
