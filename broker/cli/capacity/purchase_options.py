"""Options and examples of the commands that buy capacity, here and through a team server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import completion
from broker.cli.options import examples
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.cli.terminal import Terminal

PurchaseId = Annotated[str, typer.Argument(metavar="PURCHASE", help="ID in `gpubroker capacity purchases`.")]
AtMost = Annotated[
    str | None,
    typer.Option("--at-most", metavar="USD", help="Accept a charge of the provider up to this. Default: none."),
]
Binding = Annotated[
    str | None, typer.Option("--binding", metavar="HASH", help="Approve only if the purchase has this hash.")
]
Ceiling = Annotated[
    str | None, typer.Option("--ceiling", metavar="USD", help="Maximum cost, which is held. Default: the quoted price.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show verdict, cost and terms; change nothing.")]
Least = Annotated[
    str | None,
    typer.Option("--least", metavar="USD", help="Price of all machines for the rest of the time, before fees."),
]
NothingBought = Annotated[
    bool,
    typer.Option("--nothing-bought", help="The order had no answer, and the provider's console shows no purchase."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
Stop = Annotated[bool, typer.Option("--stop", help="Withdraw the offer.")]
WithClosed = Annotated[bool, typer.Option("--all", help="Also purchases that have ended or failed.")]

_ID = "purchase-0123456789ab"
_EXAMPLES = {
    "quote": (
        "quote H100:8 --for 2d --provider aws --region us-east-1",
        "quote p5.48xlarge --machines 4 --for 7d --from 2026-12-01 --json",
        "quote H100:8 --for 1y --product savings-plan --product reserved-instances",
    ),
    "buy": ("buy 3 --team nlp --dry-run", "buy 3 --team nlp --project llm --ceiling 4500"),
    "purchases": ("purchases", "purchases --all --json"),
    "show": (f"show {_ID}",),
    "approve": (f"approve {_ID}", f"approve {_ID} --binding 4f1c"),
    "reject": (f"reject {_ID} --reason 'spot is enough'",),
    "order": (f"order {_ID}",),
    "withdraw": (f"withdraw {_ID}",),
    "cancel": (f"cancel {_ID} --dry-run", f"cancel {_ID} --at-most 960 --yes"),
    "return": (f"return {_ID}",),
    "sell": (f"sell {_ID} --dry-run", f"sell {_ID} --least 1500", f"sell {_ID} --stop"),
}


def add(app: typer.Typer, *commands: Callable[..., None], more: tuple[str, ...] = ()) -> None:
    """Add the commands to `gpubroker capacity`, each under the name of its function. ``more``: further examples."""
    for command in commands:
        name = command.__name__.rstrip("_")
        shown = (*_EXAMPLES[name], *(one for one in more if one.startswith(f"{name} ")))
        app.command(name, epilog=examples(*(f"gpubroker capacity {line}" for line in shown)))(command)


def needs_terminal(terminal: Terminal) -> None:
    """Raises `InvalidInput` if no terminal can confirm."""
    if not terminal.asks:
        raise InvalidInput("no terminal for the confirmation; nothing was undone", hint="add --yes")


def confirm_undo(terminal: Terminal, id: str) -> None:
    """Raises `typer.Exit` (1) if the user does not confirm on the terminal that the purchase is undone."""
    if not typer.confirm(f"Undo {id} on these terms?", default=False, err=True):
        terminal.say("Nothing was undone.")
        raise typer.Exit(1)


class ProductKind(StrEnum):
    """The kinds of product, as the command line names them."""

    CAPACITY_BLOCK = "capacity-block"
    BLOCK_EXTENSION = "block-extension"
    CAPACITY_RESERVATION = "capacity-reservation"
    FUTURE_RESERVATION = "future-reservation"
    RESERVED_INSTANCES = "reserved-instances"
    SAVINGS_PLAN = "savings-plan"
    COMMITMENT = "commitment"
    PREPAID = "prepaid"
    ALL = "all"


@dataclass(frozen=True)
class QuoteOptions:
    """The options of `quote`."""

    machine: Annotated[
        str, typer.Argument(metavar="GPU:COUNT|TYPE", help="Accelerators per machine (H100:8), or an instance type.")
    ]
    machines: Annotated[int, typer.Option("--machines", min=1, max=10_000, help="Number of machines.")] = 1
    term: Annotated[str, typer.Option("--for", metavar="TIME", help="Duration, such as 2d or 3w.")] = "1d"
    start: Annotated[
        str | None,
        typer.Option("--since", "--from", metavar="WHEN", help="Earliest start: 2026-12-01, or 3d (from now)."),
    ] = None
    latest: Annotated[
        str | None, typer.Option("--until", "--to", metavar="WHEN", help="Latest start: 2026-12-31, or 30d (from now).")
    ] = None
    provider: Annotated[
        list[str] | None,
        typer.Option("--provider", "-p", metavar="NAME", autocompletion=completion.providers, help="Repeatable."),
    ] = None
    region: Annotated[
        str | None,
        typer.Option(
            "--region", "-r", metavar="REGION", autocompletion=completion.regions, help="Default: every region."
        ),
    ] = None
    product: Annotated[
        list[ProductKind] | None,
        typer.Option("--product", help="Kind of product; repeatable. Default: capacity-block."),
    ] = None
    extends: Annotated[
        str,
        typer.Option(
            "--extends", metavar="ORDER", help="The provider's ID of the block to extend, or of the machine to prepay."
        ),
    ] = ""


@dataclass(frozen=True)
class PayerOptions:
    """The team, project and environment that pay."""

    team: Annotated[str | None, typer.Option("--team", metavar="NAME", help="Team that pays.")] = None
    project: Annotated[str | None, typer.Option("--project", metavar="NAME", help="Project that pays.")] = None
    environment: Annotated[str | None, typer.Option("--environment", metavar="NAME", help="Environment.")] = None
