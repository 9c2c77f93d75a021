"""`gpubroker advise`: what GPU work needs, what it costs, and what to do about it. One small module a command."""

from __future__ import annotations

import typer

from broker.cli.advise import (
    buy_or_rent,
    cluster_cost,
    deploy,
    eco,
    hardware,
    parallelism,
    run_cost,
    savings,
    scale,
    serve,
    size,
    throughput,
    unit_cost,
)
from broker.cli.options import examples

app = typer.Typer(
    no_args_is_help=True,
    help="What GPU work needs and costs: size it, price it, buy it or rent it. Every figure says what it assumes.",
    epilog=examples("gpubroker advise size --parameters 7B --method qlora"),
)
app.command("size", epilog=size.EXAMPLES)(size.size)
app.command("parallelism", epilog=parallelism.EXAMPLES)(parallelism.parallelism)
app.command("throughput", epilog=throughput.EXAMPLES)(throughput.throughput)
app.command("scale", epilog=scale.EXAMPLES)(scale.scale)
app.command("unit-cost", epilog=unit_cost.EXAMPLES)(unit_cost.unit_cost)
app.command("run-cost", epilog=run_cost.EXAMPLES)(run_cost.run_cost)
app.command("cluster-cost", epilog=cluster_cost.EXAMPLES)(cluster_cost.cluster_cost)
app.command("buy-or-rent", epilog=buy_or_rent.EXAMPLES)(buy_or_rent.buy_or_rent)
app.command("serve", epilog=serve.EXAMPLES)(serve.serve)
app.command("hardware", epilog=hardware.EXAMPLES)(hardware.hardware)
app.command("eco", epilog=eco.EXAMPLES)(eco.eco)
app.command("savings", epilog=savings.EXAMPLES)(savings.savings)
app.command("deploy", epilog=deploy.EXAMPLES)(deploy.deploy)
