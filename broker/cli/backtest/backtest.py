"""`gpubroker backtest`: the broker's strategies, forecasts and anomaly detection on recorded data."""

from __future__ import annotations

import typer

from broker.cli.backtest import memory, placement, reserve, serving, spending

app = typer.Typer(
    no_args_is_help=True,
    help="Compute what strategies would have cost on recorded data, and how accurate estimates and forecasts are.",
)


app.command("memory", epilog=memory.EXAMPLES)(memory.memory)
app.command("placement", epilog=placement.EXAMPLES)(placement.placement)
app.command("reserve", epilog=reserve.EXAMPLES)(reserve.reserve)
app.command("serving", epilog=serving.EXAMPLES)(serving.serving)
app.command("forecast", epilog=spending.FORECAST_EXAMPLES)(spending.forecast)
app.command("anomalies", epilog=spending.ANOMALY_EXAMPLES)(spending.anomalies)
