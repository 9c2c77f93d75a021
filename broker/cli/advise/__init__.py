"""`gpubroker advise`: what GPU work needs, what it costs, and what to do about it. One small module a command."""

from __future__ import annotations

import typer

from broker.cli.lazy import lazy_group
from broker.cli.options import examples

COMMANDS = (
    "size",
    "parallelism",
    "throughput",
    "scale",
    "unit-cost",
    "run-cost",
    "cluster-cost",
    "buy-or-rent",
    "serve",
    "hardware",
    "eco",
    "savings",
    "deploy",
)

app = typer.Typer(
    cls=lazy_group("broker.cli.advise", COMMANDS),
    no_args_is_help=True,
    help="What GPU work needs and costs: size it, price it, buy it or rent it. Every figure says what it assumes.",
    epilog=examples("gpubroker advise size --parameters 7B --method qlora"),
)
