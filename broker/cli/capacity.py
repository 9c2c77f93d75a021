"""`gpubroker capacity`: what is held, what to hold, and what to let lapse."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import capacity_plan
from broker.cli.options import AsJson, examples, one_line
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.economics.reserve.holdings import Holding

app = typer.Typer(
    no_args_is_help=True, help="Owned machines, reservations and commitments: what is held, and how much to hold."
)


@app.callback()
def capacity() -> None:
    """Owned machines, reservations and commitments: what is held, and how much to hold."""


class Kind(StrEnum):
    """How capacity is held."""

    OWNED = "owned"
    RESERVATION = "reservation"
    COMMITMENT = "commitment"


@app.command(
    "list",
    epilog=examples("gpubroker capacity list", "gpubroker capacity list --offline --json"),
)
def list_(
    context: typer.Context,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask providers what they hold for the account.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """What is held: as recorded here, and as providers with a login report. Asking them changes nothing."""
    from broker.app.capacity import capacity as held
    from broker.cli import capacity_view as view

    terminal = Terminal.of(context)
    found = held(terminal.broker(), ask=not offline)
    if as_json:
        terminal.answer(view.document(found))
    else:
        terminal.show(*view.table(terminal.out, found))


@app.command(
    epilog=examples(
        "gpubroker capacity add owned H100:8 --site basement --price 250000 --from 2026-01-15 --life 4y --power 5600W",
        "gpubroker capacity add reservation H100:8 --machines 2 --provider aws --site us-east-1 --hourly 80 --term 1y",
        "gpubroker capacity add commitment A100-80GB:8 --provider gcp --price 90000 --until 2027-06-30",
    )
)
def add(
    context: typer.Context,
    kind: Annotated[Kind, typer.Argument(help="A commitment is a promise to pay for a discount, not capacity.")],
    machine: Annotated[str, typer.Argument(metavar="GPU[:COUNT]", help="Accelerators of one machine, such as H100:8.")],
    machines: Annotated[int, typer.Option("--machines", min=1, max=100_000, help="How many such machines.")] = 1,
    provider: Annotated[
        str, typer.Option("--provider", metavar="NAME", help="Who it is held from; for owned machines: owned.")
    ] = "owned",
    site: Annotated[str, typer.Option("--site", metavar="PLACE", help="Region, or where it stands.")] = "",
    price: Annotated[
        str | None,
        typer.Option("--price", metavar="USD", help="Paid once, for all machines: purchase or up-front payment."),
    ] = None,
    hourly: Annotated[
        str | None, typer.Option("--hourly", metavar="USD", help="Paid every hour, used or not, for all machines.")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="WHEN", help="Since when, or from when on; now if not given.")
    ] = None,
    term: Annotated[
        str | None, typer.Option("--term", "--life", metavar="TIME", help="How long: 1y, 36mo, 720h, or 4y of life.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="WHEN", help="The end, instead of --term.")] = None,
    power: Annotated[
        str, typer.Option("--power", metavar="WATTS", help="What all machines draw in use: 5600W, 5.6kW.")
    ] = "0",
    note: Annotated[str, typer.Option("--note", callback=one_line, help="A word for later.")] = "",
    as_json: AsJson = False,
) -> None:
    """Put capacity on record: machines that were bought, reservations, commitments. Launches and buys nothing.

    What was paid is what `capacity plan` and the findings about buying and renting reckon with, so it must be said:
    --price, --hourly or both; 0 for what cost nothing.
    """
    from rich.text import Text

    from broker.app import capacity as use_case
    from broker.cli import capacity_view as view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    if kind is not Kind.OWNED and provider == "owned":
        raise InvalidInput(f"a {kind} is held from somebody: say from whom", where="--provider", hint="--provider aws")
    begins, ends = _span(start, term, until, broker.clock.now())
    provider, doubt = use_case.provider_of(broker, provider, owned=kind is Kind.OWNED)
    holding = _holding(kind, machine, machines, provider, site, price or "0", hourly or "0", begins, ends, power, note)
    if price is None and hourly is None:
        raise InvalidInput(
            "say what was paid for it, once or every hour: --price or --hourly",
            where="--price",
            hint="plans and findings reckon what a GPU-hour of it costs from that; --price 0 for what cost nothing",
        )
    added = use_case.add(broker, holding)
    if doubt:
        terminal.say(Text(f"warning: {doubt}", style="yellow"))
    if as_json:
        terminal.answer(view.recorded(added))
    else:
        terminal.show(view.sentence(added))


@app.command(epilog=examples("gpubroker capacity remove 3"))
def remove(
    context: typer.Context,
    number: Annotated[int, typer.Argument(min=1, help="Its number in `gpubroker capacity list`.")],
    as_json: AsJson = False,
) -> None:
    """Take a record back that was a mistake. Cancels nothing at a provider."""
    from broker.app import capacity as use_case
    from broker.cli import capacity_view as view

    terminal = Terminal.of(context)
    removed = use_case.remove(terminal.broker(), number)
    if as_json:
        terminal.answer(view.recorded(removed))
    else:
        terminal.show(f"Taken off the record: {view.sentence(removed)}")


app.command("plan", epilog=capacity_plan.EXAMPLES)(capacity_plan.plan)


def _holding(
    kind: Kind,
    machine: str,
    machines: int,
    provider: str,
    site: str,
    price: str,
    hourly: str,
    starts: datetime,
    ends: datetime,
    power: str,
    note: str,
) -> Holding:
    from broker.cli import asked
    from broker.core.accelerators import canonical
    from broker.core.units import split_machine
    from broker.economics.reserve.holdings import Holding, HoldingKind

    try:
        name, count = split_machine(machine)
    except ValueError as error:
        raise InvalidInput(str(error), where="GPU") from error
    return Holding(
        kind=HoldingKind(kind.value),
        accelerator=canonical(name),
        gpus=count * machines,
        provider=provider,
        site=site,
        starts=starts,
        ends=ends,
        upfront=asked.price("--price", price),
        hourly=asked.price("--hourly", hourly),
        watts=_watts(power),
        note=note,
    )


def _span(start: str | None, term: str | None, until: str | None, now: datetime) -> tuple[datetime, datetime]:
    from broker.cli import asked
    from broker.cli.capacity_terms import length

    begins = now if start is None else asked.moment("--from", start, now)
    if term is None and until is None:
        raise InvalidInput("say how long it is held: --term 1y (or --life 4y) from its start, or --until 2027-06-30")
    if term is not None and until is not None:
        raise InvalidInput(f"--term {term} and --until {until} both say when it ends: leave one of them out")
    if until is not None:
        ends = asked.moment("--until", until, now)
        if ends <= begins:
            day, first = f"{ends:%Y-%m-%d %H:%M} UTC", f"{begins:%Y-%m-%d %H:%M} UTC"
            raise InvalidInput(
                f"--until is {day}, before it starts, {first}",
                hint="a length of time goes with --term: --term 30d" if until[-1:].isalpha() else "",
            )
        return begins, ends
    return begins, begins + length("--term", term or "")


def _watts(text: str) -> float:
    bare = text.strip().lower()
    factor = 1000.0 if bare.endswith("kw") else 1.0
    amount = bare.removesuffix("kw").removesuffix("w").strip()
    if not amount.replace(".", "", 1).isdecimal():
        raise InvalidInput(f"expected a power, such as 5600W or 5.6kW; got {text!r}", where="--power")
    return float(amount) * factor
