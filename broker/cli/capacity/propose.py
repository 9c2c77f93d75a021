"""`gpubroker capacity propose`, and `capacity buy --from-plan`: purchases computed from past use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import completion
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, OnDemandPrice, SpotPrice
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.app.capacity.plan import CapacityPlans
    from broker.app.wiring import Broker
    from broker.core.purchases.purchases import Purchase


@dataclass(frozen=True)
class ProposeOptions:
    """The options of `propose`."""

    machine: Annotated[str, typer.Argument(metavar="GPU:COUNT", help="Accelerators per machine, such as H100:8.")]
    machines: Annotated[int, typer.Option("--machines", min=1, max=10_000, help="Number of machines.")] = 1
    term: Annotated[str, typer.Option("--for", metavar="TIME", help="Duration, such as 2d or 1y.")] = "7d"
    start: Annotated[
        str | None, typer.Option("--since", "--from", metavar="WHEN", help="Earliest start: 2026-12-01, or 3d.")
    ] = None
    demand: Annotated[
        str | None, typer.Option("--demand", metavar="[GPU=]FILE", help="GPUs needed per hour. Default: as recorded.")
    ] = None
    last: Annotated[str, typer.Option("--last", metavar="TIME", help="Length of the recorded period.")] = "90d"
    on_demand_price: OnDemandPrice = None
    spot_price: SpotPrice = None
    provider: Annotated[
        list[str] | None,
        typer.Option("--provider", "-p", metavar="NAME", autocompletion=completion.providers, help="Repeatable."),
    ] = None
    region: Annotated[str | None, typer.Option("--region", "-r", metavar="REGION", help="Default: every region.")] = (
        None
    )


@gathered
def propose(context: typer.Context, given: ProposeOptions, as_json: AsJson = False) -> None:
    """Propose purchases: quotes of every kind for that time, from the least to the most committed. Buys nothing.

    Each line has its break-even, what it would have saved with the use of the past, and what it can lose. The printed
    document is bought with `capacity buy --from-plan FILE`, each line once, after the usual approvals.
    """
    from broker.app.capacity import proposal as use_case
    from broker.app.capacity.wanted import wanted_machine
    from broker.app.results.proposal import ProposalResult
    from broker.cli.capacity import purchases_view
    from broker.cli.capacity.terms import length
    from broker.core.purchases.quotes import PurchaseProduct, QuoteRequest

    terminal = Terminal.of(context)
    broker = terminal.broker()
    instance_type, accelerator, count = wanted_machine(given.machine)
    if accelerator is None:
        raise InvalidInput("expected accelerators, such as H100:8", where="GPU:COUNT")
    from broker.cli import filters

    planned = _planned(broker, accelerator, given)
    request = QuoteRequest(
        machines=given.machines,
        instance_type=instance_type,
        accelerator=accelerator,
        count=count,
        length=length("--for", given.term),
        region=given.region,
        earliest=None if given.start is None else filters.moment_ahead("--since", given.start, broker.clock.now()),
        products=tuple(one for one in PurchaseProduct if one is not PurchaseProduct.BLOCK_EXTENSION),
    )
    found = ProposalResult.of(use_case.propose(broker, planned, accelerator, request, given.provider or ()))
    terminal.result(found, lambda: purchases_view.proposal(terminal.out, found))


def buy_from(terminal: Terminal, file: Path, lines: list[int], whose: Mapping[str, str | None]) -> list[Purchase]:
    """Request the purchases of these lines of a proposal's file; if ``lines`` is empty, of its best line."""
    from broker.app.capacity.proposal import buy_line
    from broker.app.results.proposal import read_proposal

    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot be read: {error}", where=str(file)) from error
    found, quotes = read_proposal(text, str(file))
    wanted = lines or ([found.best] if found.best is not None else [])
    if not wanted:
        raise InvalidInput("no line of it saves anything", where=str(file), hint="name lines: --line 1")
    for line in wanted:
        if line not in quotes:
            raise InvalidInput(f"it has no line {line}", where="--line", hint=f"1 to {len(quotes)}")
    return [
        buy_line(terminal.broker(), found.id, line, quotes[line], by=terminal.actor, **whose)
        for line in dict.fromkeys(wanted)
    ]


def _planned(broker: Broker, accelerator: str, given: ProposeOptions) -> CapacityPlans:
    from broker.app.capacity import plan
    from broker.cli import filters
    from broker.cli.capacity.terms import length

    def price(option: str, text: str | None) -> dict[str, float]:
        return {} if text is None else {plan.ALL: float(filters.price(option, text).dollars)}

    stated = plan.checked(
        plan.Stated(
            on_demand=price("--on-demand-price", given.on_demand_price), spot=price("--spot-price", given.spot_price)
        )
    )
    if given.demand is None:
        history = plan.demand_of_history(broker, broker.clock.now() - length("--last", given.last))
        found, source, share = history.demand, f"{history.attempts} attempts on record here", history.spot_share
    else:
        name, equals, path = given.demand.partition("=")
        files = [(name, Path(path)) if equals else ("", Path(given.demand))]
        found, _ = plan.demand_of_files(files)
        source, share = given.demand, {}
    wanted = {accelerator: found[accelerator]} if accelerator in found else {}
    if not wanted:
        raise InvalidInput(f"no demand for {accelerator} is known", hint=f"--demand {accelerator}=FILE")
    return plan.plan(broker, wanted, source, stated, spot_share=share)
