"""`gpubroker backtest`: what the broker's strategies would have cost on recorded data. One small module a command."""

from __future__ import annotations

import typer

from broker.cli import backtest_placement, backtest_reserve

app = typer.Typer(
    no_args_is_help=True,
    help="What the broker's strategies would have cost on recorded data, against other rules and the best possible.",
)


@app.callback()
def backtest() -> None:
    """What the broker's strategies would have cost on recorded data, against other rules and the best possible."""


app.command("placement", epilog=backtest_placement.EXAMPLES)(backtest_placement.placement)
app.command("reserve", epilog=backtest_reserve.EXAMPLES)(backtest_reserve.reserve)
