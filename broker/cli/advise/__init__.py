"""`gpubroker advise`: size GPU work, compute its cost, recommend purchases and savings. One module per command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from broker.cli.advise.inputs import RULES
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
    "capacity",
    "serve",
    "hardware",
    "embed",
    "images",
    "eco",
    "savings",
    "rules",
    "deploy",
)

app = typer.Typer(
    cls=lazy_group({name: f"{__name__}.{(own := name.replace('-', '_'))}:{own}" for name in COMMANDS}),
    no_args_is_help=True,
    epilog=examples(
        "gpubroker advise size --parameters 7B --method qlora",
        "gpubroker advise --rules rules.yaml buy-or-rent --gpu H100 --hours-per-day 5",
    ),
)


@app.callback()
def advise(
    context: typer.Context,
    rules: Annotated[
        Path | None,
        typer.Option(
            "--rules", metavar="FILE", help="Your own rules of thumb (YAML), such as `memory_headroom: 0.15`."
        ),
    ] = None,
) -> None:
    """Size GPU work, compute its cost, compare buying and renting. Every answer lists its assumptions."""
    context.meta[RULES] = rules
