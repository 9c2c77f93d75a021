"""`gpubroker advise`: size GPU work, compute its cost, recommend purchases and savings."""

import typer

from broker.cli.lazy import lazy_group
from broker.cli.options import examples

COMMANDS = (
    "size", "speed", "cost", "buy-or-rent", "serve", "hardware", "savings", "deploy", "rules", "assumptions"
)  # fmt: skip

app = typer.Typer(
    cls=lazy_group({"Commands": {name: f"{__name__}.commands:{name.replace('-', '_')}" for name in COMMANDS}}),
    no_args_is_help=True,
    epilog=examples(
        "gpubroker advise size 7B --method qlora",
        "gpubroker advise buy-or-rent --gpu H100 --hours-per-day 5 --assume kwh_usd=0.30",
    ),
)


@app.callback()
def advise() -> None:
    """Size GPU work, compute its cost, compare buying and renting. Every answer lists its assumptions; `--assume` sets
    them."""
