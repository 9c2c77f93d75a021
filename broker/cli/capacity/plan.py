"""`gpubroker capacity plan | propose`: how much to own or reserve, how much to rent on demand, and what to buy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import completion, filters
from broker.cli.drawing import Drawing, draw
from broker.cli.filters import RowFilter, hours_option, term_option
from broker.cli.options import AsJson, NamedProviders, OnDemandPrice, SpotPrice, expand_options
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput, UnknownName
from broker.core.market.accelerators import canonical

if TYPE_CHECKING:
    from broker.app.capacity.plan import KnownDemand, StatedPrices
    from broker.app.wiring import Broker
    from broker.economics.assumptions import Assumptions


_PLAN_FILTER = RowFilter(gpu=completion.gpus, provider=completion.providers)


@dataclass(frozen=True)
class CapacityPlanOptions:
    """The options of `plan`."""

    demand: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[GPU=]FILE",
            help="Hourly GPU demand: one number per line, or a CSV with one column per accelerator.",
        ),
    ] = None
    last: Annotated[str, typer.Option(metavar="TIME", help="Without --demand: length of the recorded period.")] = "1y"
    where: Annotated[list[str] | None, _PLAN_FILTER.option] = None
    on_demand_price: Annotated[
        list[str] | None, typer.Option(metavar="[GPU=]USD", help="Price per GPU-hour, instead of the market's.")
    ] = None
    spot_price: Annotated[
        list[str] | None, typer.Option(metavar="[GPU=]USD", help="Price per GPU-hour, instead of the market's.")
    ] = None
    reserved_price: Annotated[
        list[str] | None,
        typer.Option(metavar="[GPU=]USD", help="Price per GPU-hour for --term, instead of the market's."),
    ] = None
    ratio: Annotated[
        float | None, typer.Option(help="Reserved price over on-demand price, instead of --reserved-price.")
    ] = None
    term: Annotated[
        list[str] | None,
        typer.Option(metavar="TIME", help="Term of the stated reserved price: 720h, 1y, 36mo. Repeatable."),
    ] = None
    own_price: Annotated[
        list[str] | None,
        typer.Option(metavar="[GPU=]USD", help="Purchase price of a GPU with its share of the machine."),
    ] = None
    assume: Annotated[
        list[str] | None,
        typer.Option(
            "--assume",
            metavar="NAME=VALUE",
            help="Set an assumption of `gpubroker advise assumptions`: years, watts (of a purchased GPU with its share "
            "of the machine), kwh_usd, pue. Repeatable.",
        ),
    ] = None
    spot_share: Annotated[
        float | None,
        typer.Option(help="Share of bursts that runs on spot, 0 to 1. Default: as recorded; 0 with --demand."),
    ] = None


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
    provider: NamedProviders = None
    region: Annotated[str | None, typer.Option("--region", "-r", metavar="REGION", help="Default: every region.")] = (
        None
    )


@expand_options
def plan(context: typer.Context, given: CapacityPlanOptions, drawing: Drawing, as_json: AsJson = False) -> None:
    """Plan how much to own or reserve and for how long, what to rent on demand, which commitments not to renew.

    Buys nothing. A GPU is worth holding if the share of hours in which demand reaches it exceeds its price over the
    price of bursts, plus a margin for the commitment unless demand repeats weekly. Unless prices are given, terms are
    compared with the rent on demand of machines of their class; old ones are not. Capacity already held is read from
    the records of `capacity list`.
    """
    from broker.app.capacity import plan as use_case
    from broker.cli.capacity import plan_view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    stated_prices, filters = use_case.check_prices(_stated_prices(given)), _PLAN_FILTER.read(given.where)
    known_demand = _demand(broker, given.demand or [], given.last)
    demand = _select_demand(known_demand.demand, filters.get("gpu", []))
    plan_list = use_case.plan_accelerators(
        broker,
        demand,
        known_demand.source,
        stated_prices,
        assumptions=_assumptions(broker, given.assume),
        providers=filters.get("provider", []),
        spot_share=known_demand.spot_share if given.spot_share is None else given.spot_share,
        notes=known_demand.notes,
    )
    draw(terminal, lambda: plan_view.charts(plan_list, demand), drawing)
    terminal.result(plan_list, lambda: plan_view.plan_lines(terminal.out, plan_list))


@expand_options
def propose(context: typer.Context, given: ProposeOptions, as_json: AsJson = False) -> None:
    """Propose purchases: quotes of every kind for that time, from the least to the most committed. Buys nothing.

    Each line has its break-even, what it would have saved with the use of the past, and what it can lose. The printed
    document is bought with `capacity buy --from-plan FILE`, each line once, after the usual approvals.
    """
    from broker.app.capacity import plan, proposal
    from broker.app.capacity.quote_requests import CapacityRequest
    from broker.cli.capacity import capacity_view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    term_option("--for", given.term)
    start = None if given.start is None else filters.moment_ahead_option("--since", given.start, broker.clock.now())
    request = CapacityRequest(
        given.machine, given.machines, given.term, given.region, start, products=["all"]
    ).request()
    accelerator = request.accelerator
    if accelerator is None:
        raise InvalidInput("expected accelerators, such as H100:8", where="GPU:COUNT")
    stated_prices = plan.StatedPrices(
        on_demand=_prices("--on-demand-price", None if given.on_demand_price is None else [given.on_demand_price]),
        spot=_prices("--spot-price", None if given.spot_price is None else [given.spot_price]),
    )
    known_demand = _demand(broker, [given.demand] if given.demand else [], given.last)
    if accelerator not in known_demand.demand:
        raise InvalidInput(f"no demand for {accelerator} is known", hint=f"--demand {accelerator}=FILE")
    selected_demand, share = {accelerator: known_demand.demand[accelerator]}, known_demand.spot_share
    plan_list = plan.plan_accelerators(
        broker,
        selected_demand,
        known_demand.source,
        plan.check_prices(stated_prices),
        assumptions=_assumptions(broker),
        spot_share=share,
    )
    result = proposal.propose(
        broker, plan_list, accelerator, selected_demand[accelerator], request, given.provider or ()
    )
    terminal.result(result, lambda: capacity_view.proposal_lines(terminal.out, result))


def _stated_prices(given: CapacityPlanOptions) -> StatedPrices:
    from broker.app.capacity.plan import StatedPrices

    if given.term and given.ratio is None and not given.reserved_price:
        raise InvalidInput("needs a stated price", where="--term", hint="add --reserved-price or --ratio")
    if given.reserved_price and given.ratio is not None:
        raise InvalidInput("give --reserved-price or --ratio, not both", where="--ratio")
    return StatedPrices(
        on_demand=_prices("--on-demand-price", given.on_demand_price),
        spot=_prices("--spot-price", given.spot_price),
        reserved=_prices("--reserved-price", given.reserved_price),
        ratio=given.ratio,
        terms=tuple(hours_option("--term", text) for text in given.term or ["1y"]),
        own=_prices("--own-price", given.own_price),
    )


def _assumptions(broker: Broker, assignments: Sequence[str] | None = None) -> Assumptions:
    """The assumptions of the active policies, with those of the command in their place."""
    from broker.app.assumptions import load_assumptions
    from broker.cli.advise.inputs import override_stated, stated_assumptions

    base = load_assumptions(broker.settings.store_url, lambda: broker)
    return override_stated(stated_assumptions(assignments), base)


def _prices(option: str, texts: list[str] | None) -> dict[str, float]:
    """``H100=2.10`` for one accelerator, ``2.10`` for all of them."""
    from broker.app.capacity.plan import ANY_ACCELERATOR

    price_by_name: dict[str, float] = {}
    for text in texts or []:
        name, equals, amount = text.rpartition("=")
        try:
            accelerator = canonical(name) if equals else ANY_ACCELERATOR
        except UnknownName:
            accelerator = name  # a series of that name
        price_by_name[accelerator] = float(filters.price_option(option, amount).dollars)
    return price_by_name


def _demand(broker: Broker, files: list[str], last: str) -> KnownDemand:
    """The demand in the files, or else as recorded in the ``last`` time."""
    from broker.app.capacity import plan

    if files:
        return plan.demand_from_files([_parse_demand_file(text) for text in files])
    return plan.demand_from_history(broker, broker.clock.now() - term_option("--last", last))


def _parse_demand_file(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    return (name, Path(path)) if equals and not Path(text).exists() else ("", Path(text))


def _select_demand(demand: dict[str, list[int]], accelerators: list[str]) -> dict[str, list[int]]:
    if not accelerators:
        return demand
    names = [name if name in demand else canonical(name) for name in accelerators]
    for name in names:
        if name not in demand:
            raise UnknownName("accelerator with demand", name, demand, where="--where gpu=")
    return {name: demand[name] for name in names}
