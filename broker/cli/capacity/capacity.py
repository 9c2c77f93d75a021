"""`gpubroker capacity`: list, record and plan owned machines, reservations and commitments."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from broker.cli import completion, filters
from broker.cli.capacity import plan, purchases
from broker.cli.capacity.purchases import PurchaseId
from broker.cli.filters import term_option
from broker.cli.options import AsJson, OnDemandPrice, SpotPrice, check_one_line, examples, expand_options
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.core.market.accelerators import canonical

if TYPE_CHECKING:
    from broker.economics.reserve.holdings import Holding

app = typer.Typer(no_args_is_help=True, help="List, record, plan and buy owned machines, reservations and commitments.")


@app.callback()
def capacity() -> None:
    """List, record, plan and buy owned machines, reservations and commitments."""


HoldingNumber = Annotated[int, typer.Argument(min=1, help="Number in `gpubroker capacity list`.")]


class CapacityKind(StrEnum):
    """The type of capacity."""

    OWNED = "owned"
    RESERVATION = "reservation"
    COMMITMENT = "commitment"


def list_(
    context: typer.Context,
    offline: Annotated[bool, typer.Option("--offline", help="Do not query providers.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Show only where providers differ from what was bought and recorded here.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List capacity: as recorded, and as reported by providers with a login. Changes nothing.

    With --check, exits with 2 if they differ, and with 5 if a provider did not answer or none could be asked.
    `gpubroker serve` runs this check every hour.
    """
    from broker.app.use_cases.capacity import list_capacity
    from broker.cli.capacity import capacity_view

    terminal = Terminal.of(context)
    terminal.only_here({"--check": check})
    if not check:
        inventory = terminal.ask(list_capacity, ask=not offline)
        terminal.result(inventory, lambda: capacity_view.capacity_lines(terminal.out, inventory))
        return
    if offline:
        raise InvalidInput("--check asks the providers", where="--offline", hint="leave it out")
    from broker.app.capacity.capacity import check_capacity

    report = check_capacity(terminal.broker())
    terminal.result(report, lambda: capacity_view.check_lines(report))
    if report.differences or report.problems or not report.asked:
        raise typer.Exit(2 if report.differences else 5)


@dataclass(frozen=True)
class HoldingOptions:
    """The recorded properties of a holding."""

    machine: Annotated[str, typer.Argument(metavar="GPU[:COUNT]", help="Accelerators per machine, such as H100:8.")]
    machines: Annotated[int, typer.Option("--machines", min=1, max=100_000, help="Number of machines.")] = 1
    provider: Annotated[
        str, typer.Option("--provider", metavar="NAME", help="Provider; for owned machines: owned.")
    ] = "owned"
    site: Annotated[str, typer.Option("--site", metavar="PLACE", help="Region or location.")] = ""
    price: Annotated[
        str | None,
        typer.Option(
            "--price", metavar="USD", help="One-time payment for all machines: purchase price or up-front fee."
        ),
    ] = None
    hourly: Annotated[
        str | None, typer.Option("--hourly", metavar="USD", help="Hourly payment for all machines, used or not.")
    ] = None
    start: Annotated[str | None, typer.Option("--since", "--from", metavar="WHEN", help="Start. Default: now.")] = None
    term: Annotated[
        str | None,
        typer.Option(
            "--term", "--life", metavar="TIME", help="Duration: 1y, 36mo, 720h; of owned machines the useful life."
        ),
    ] = None
    until: Annotated[str | None, typer.Option("--until", "--to", metavar="WHEN", help="End, instead of --term.")] = None
    power: Annotated[
        str, typer.Option("--power", metavar="WATTS", help="Power draw of all machines in use: 5600W, 5.6kW.")
    ] = "0"
    note: Annotated[str, typer.Option("--note", callback=check_one_line, help="Note, for the record.")] = ""
    proof: Annotated[
        Path | None,
        typer.Option("--proof", metavar="FILE", help="Invoice or contract: hashed, and kept in the store (5 MB)."),
    ] = None
    order: Annotated[
        str,
        typer.Option("--order", metavar="ID", callback=check_one_line, help="The provider's ID, for `list --check`."),
    ] = ""


@expand_options
def add(
    context: typer.Context,
    kind: Annotated[
        CapacityKind, typer.Argument(help="A commitment is a promise to pay for a discount; it is not capacity.")
    ],
    given: HoldingOptions,
    as_json: AsJson = False,
) -> None:
    """Record capacity: purchased machines, reservations, commitments. Launches and buys nothing.

    `capacity plan` and `policy findings` compute the cost of a GPU-hour from the payment, so it is required: --price,
    --hourly or both; 0 for free capacity.
    """
    from broker.app.capacity import capacity as use_case
    from broker.app.capacity.documents import RecordedCapacity
    from broker.cli.capacity import capacity_view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    if kind is not CapacityKind.OWNED and given.provider == "owned":
        raise InvalidInput(f"a {kind} needs a provider", where="--provider", hint="--provider aws")
    begins, ends = _span(given.start, given.term, given.until, broker.clock.now())
    provider, provider_warning = use_case.resolve_provider(
        broker, given.provider, given.site, owned=kind is CapacityKind.OWNED
    )
    holding = _holding(kind, given, provider, begins, ends)
    if given.price is None and given.hourly is None:
        raise InvalidInput(
            "the payment is missing: give --price (one-time), --hourly or both",
            where="--price",
            hint="plans and findings compute the cost of a GPU-hour from it; --price 0 for free capacity",
        )
    recorded = RecordedCapacity.of(use_case.add(broker, holding, by=terminal.actor, proof=given.proof))
    if provider_warning:
        terminal.say(Text(f"warning: {provider_warning}", style="yellow"))
    terminal.result(recorded, lambda: [capacity_view.record_text(recorded)])


def remove(context: typer.Context, number: HoldingNumber, as_json: AsJson = False) -> None:
    """Delete a record that was added by mistake. Cancels nothing at a provider."""
    from broker.app.capacity import capacity as use_case
    from broker.app.capacity.documents import RecordedCapacity
    from broker.cli.capacity import capacity_view

    terminal = Terminal.of(context)
    removed = RecordedCapacity.of(use_case.remove(terminal.broker(), number, by=terminal.actor))
    terminal.result(removed, lambda: [f"Removed {capacity_view.record_text(removed)}"])


def checklist(
    context: typer.Context,
    provider: Annotated[
        str, typer.Argument(metavar="PROVIDER", autocompletion=completion.providers, help="Provider to buy from.")
    ],
    unlike: Annotated[bool, typer.Option("--unlike", help="Accept a name that resembles a known provider.")] = False,
    as_json: AsJson = False,
) -> None:
    """Steps to buy capacity by hand from a provider without an API. Changes nothing."""
    from broker.app.capacity.capacity import checklist as made
    from broker.cli.capacity import capacity_view

    terminal = Terminal.of(context)
    steps_result = made(terminal.broker(), provider, unlike=unlike)
    terminal.result(steps_result, lambda: capacity_view.checklist_lines(steps_result))


def proof(
    context: typer.Context,
    number: HoldingNumber,
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="Where to write it; must not exist.")],
    as_json: AsJson = False,
) -> None:
    """Write the document that was kept with a record: the stored invoice (checksum verified)."""
    from broker.app.capacity.capacity import read_proof
    from broker.app.capacity.documents import HoldingProofResult

    terminal = Terminal.of(context)
    name, content = read_proof(terminal.broker(), number)
    try:
        with os.fdopen(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
    except OSError as error:
        raise InvalidInput(
            f"cannot be written: {error.strerror}", where=str(to), hint="--to names a new file"
        ) from error
    digest = sha256(content).hexdigest()
    proof_result = HoldingProofResult(number=number, file=str(to), name=name, size_bytes=len(content), sha256=digest)
    terminal.result(proof_result, lambda: [f"{to}: {name}, {len(content):,} bytes, SHA-256 {digest}"])


def review(
    context: typer.Context,
    id: PurchaseId,
    on_demand_price: OnDemandPrice = None,
    spot_price: SpotPrice = None,
    as_json: AsJson = False,
) -> None:
    """Show the use of a purchase by team, its idle hours, and the cost of the same use elsewhere."""
    from broker.app.capacity.purchases import purchase_review
    from broker.cli.capacity import capacity_view

    def price(option: str, amount: str | None) -> float | None:
        return None if amount is None else float(filters.price_option(option, amount).dollars)

    terminal = Terminal.of(context)
    broker = terminal.broker()
    on_demand, spot = price("--on-demand-price", on_demand_price), price("--spot-price", spot_price)
    purchase_report = purchase_review(broker, id, on_demand=on_demand, spot=spot)
    terminal.result(purchase_report, lambda: capacity_view.review_lines(purchase_report))


_ID = "purchase-0123456789ab"
_COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {  # in the order of the help, with examples
    list_: ("list", "list --offline --json", "list --check"),
    add: (
        "add owned H100:8 --site basement --price 250000 --from 2026-01-15 --life 4y --power 5600W",
        "add reservation H100:8 --machines 2 --provider aws --site us-east-1 --hourly 80 --term 1y",
        "add commitment A100-80GB:8 --provider gcp --price 90000 --until 2027-06-30",
        "add reservation H100:8 --provider crusoe --price 9000 --term 30d --order A17 --proof a.pdf",
    ),
    remove: ("remove 3",),
    plan.plan: (
        "plan",
        "plan --demand H100=h100.csv --reserved-price 2.10 --term 1y --spot-share 0.5",
        "plan --demand fleet.csv --ratio 0.6 --term 720h --chart",
        "plan --where gpu=A100-80GB --own-price 15000 --assume years=4 --assume watts=700 --assume kwh_usd=0.15",
    ),
    checklist: ("checklist coreweave",),
    proof: ("proof 3 --to contract.pdf",),
    purchases.quote: (
        "quote H100:8 --for 2d --provider aws --region us-east-1",
        "quote p5.48xlarge --machines 4 --for 7d --from 2026-12-01 --json",
        "quote H100:8 --for 1y --product savings-plan --product commitment",
    ),
    purchases.buy: (
        "buy 3 --team nlp --dry-run",
        "buy 3 --team nlp --project llm --ceiling 4500",
        "buy --from-plan proposal.json --line 2 --team nlp",
    ),
    purchases.purchases: ("purchases", "purchases --all --json", f"purchases {_ID}", f"purchases {_ID} --order"),
    purchases.undo: (f"undo {_ID} --dry-run", f"undo {_ID} --at-most 960 --yes"),
    plan.propose: (
        "propose H100:8 --machines 2 --for 7d --region us-east-1",
        "propose H100:8 --for 14d --demand H100=hours.csv --json",
    ),
    review: (f"review {_ID}",),
}
for command, lines in _COMMANDS.items():
    shown = examples(*(f"gpubroker capacity {line}" for line in lines))
    app.command(command.__name__.rstrip("_"), epilog=shown)(command)


def _holding(kind: CapacityKind, options: HoldingOptions, provider: str, starts: datetime, ends: datetime) -> Holding:
    from broker.core.values.units import split_machine
    from broker.economics.reserve.holdings import Holding, HoldingKind

    try:
        name, count = split_machine(options.machine)
    except ValueError as error:
        raise InvalidInput(str(error), where="GPU") from error
    return Holding(
        kind=HoldingKind(kind.value),
        accelerator=canonical(name),
        gpus=count * options.machines,
        provider=provider,
        site=options.site,
        starts=starts,
        ends=ends,
        upfront=filters.price_option("--price", options.price or "0"),
        hourly=filters.price_option("--hourly", options.hourly or "0"),
        watts=_watts(options.power),
        note=options.note,
        order_id=options.order.strip(),
    )


def _span(start: str | None, term: str | None, until: str | None, now: datetime) -> tuple[datetime, datetime]:
    start_at = now if start is None else filters.moment_option("--since", start, now)
    if term is None and until is None:
        raise InvalidInput("the duration is missing: give --term 1y (or --life 4y), or --until 2027-06-30")
    if term is not None and until is not None:
        raise InvalidInput(f"--term {term} and --until {until} both set the end: remove one of them")
    if until is not None:
        end_at = filters.moment_option("--until", until, now)
        if end_at <= start_at:
            end_text, start_text = f"{end_at:%Y-%m-%d %H:%M} UTC", f"{start_at:%Y-%m-%d %H:%M} UTC"
            raise InvalidInput(
                f"--until is {end_text}, before the start, {start_text}",
                hint="for a duration use --term, such as --term 30d" if until[-1:].isalpha() else "",
            )
        return start_at, end_at
    return start_at, start_at + term_option("--term", term or "")


def _watts(power_text: str) -> float:
    normalized = power_text.strip().lower()
    factor = 1000.0 if normalized.endswith("kw") else 1.0
    amount = normalized.removesuffix("kw").removesuffix("w").strip()
    if not amount.replace(".", "", 1).isdecimal():
        raise InvalidInput(f"expected a power, such as 5600W or 5.6kW; got {power_text!r}", where="--power")
    return float(amount) * factor
