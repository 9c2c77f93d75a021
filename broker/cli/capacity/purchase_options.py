"""Options of the commands that buy capacity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from broker.cli import completion

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
NothingBought = Annotated[
    bool,
    typer.Option("--nothing-bought", help="The order had no answer, and the provider's console shows no purchase."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
WithClosed = Annotated[bool, typer.Option("--all", help="Also purchases that have ended or failed.")]


class ProductKind(StrEnum):
    """The kinds of product, as the command line names them."""

    CAPACITY_BLOCK = "capacity-block"
    CAPACITY_RESERVATION = "capacity-reservation"
    FUTURE_RESERVATION = "future-reservation"
    RESERVED_INSTANCES = "reserved-instances"
    SAVINGS_PLAN = "savings-plan"
    COMMITMENT = "commitment"
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


@dataclass(frozen=True)
class PayerOptions:
    """The team, project and environment that pay."""

    team: Annotated[str | None, typer.Option("--team", metavar="NAME", help="Team that pays.")] = None
    project: Annotated[str | None, typer.Option("--project", metavar="NAME", help="Project that pays.")] = None
    environment: Annotated[str | None, typer.Option("--environment", metavar="NAME", help="Environment.")] = None
