"""`gpubroker offers`: GPU offers with price, location and availability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import filters
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.prices.first_look import Offline, first_look
from broker.cli.terminal import Terminal
from broker.core.market.offer_order import OfferOrder

if TYPE_CHECKING:
    from broker.core.market.offers import OfferQuery

EXAMPLES = examples(
    "gpubroker offers --gpu H100:8 --spot",
    "gpubroker offers --gpu A100-80GB --gpu H100 --region 'us-*' --max-price '$4'",
    "gpubroker offers --gpu H100:8 --available --live --sort interruptions",
    "gpubroker offers --gpu H100:8 --spot --risk",
    "gpubroker offers --group-by gpu,provider --json",
    "gpubroker offers --provider sandbox",
)

_ROWS = 30


@dataclass(frozen=True)
class OffersOptions:
    """The options of `offers`."""

    gpu: filters.Gpus = None
    spot: Annotated[bool, typer.Option("--spot", help="Spot offers.")] = False
    on_demand: Annotated[bool, typer.Option("--on-demand", help="On-demand offers.")] = False
    reserved: Annotated[bool, typer.Option("--reserved", help="Reserved capacity and reservations to buy.")] = False
    owned: Annotated[bool, typer.Option("--owned", help="Owned machines.")] = False
    provider: filters.Providers = None
    region: filters.Regions = None
    machine_type: Annotated[
        list[str] | None, typer.Option("--machine-type", "-m", help="Provider's machine type or pattern. Repeatable.")
    ] = None
    available: Annotated[
        bool, typer.Option("--available", help="Only offers that the provider reports as available.")
    ] = False
    live: Annotated[
        bool, typer.Option("--live", help="Only live prices: no reference, imported, stale or doubted prices.")
    ] = False
    doubted: Annotated[
        bool, typer.Option("--doubted", help="Only offers in doubt: missing from a suspect poll, or at an odd price.")
    ] = False
    max_price: Annotated[
        str | None, typer.Option(metavar="USD", help="Maximum price per GPU-hour, such as $4 or 4.")
    ] = None
    group_by: Annotated[
        str | None,
        typer.Option(
            metavar="DIMS",
            help="Cheapest offer per group: gpu, machine, provider, region, zone, instance_type, capacity_type.",
        ),
    ] = None
    sort: Annotated[OfferOrder, typer.Option(help="Sort order.")] = OfferOrder.GPU_PRICE
    risk: Annotated[
        bool,
        typer.Option(
            "--risk", help="Show interruption rates, time until capacity returns, and the data behind the estimates."
        ),
    ] = False
    limit: filters.Limit = None
    every: Annotated[bool, typer.Option("--all", "-a", help="Show all rows.")] = False
    old: Annotated[bool, typer.Option("--old", help="Also reference prices of more than 180 days ago (spot: 60).")] = (
        False
    )
    offline: Offline = False


@gathered
def offers(context: typer.Context, given: OffersOptions, as_json: AsJson = False) -> None:
    """List GPU offers with price, location and availability. One row per offer, cheapest GPU-hour first.

    The first use asks the providers that need no login and answer within seconds (not with --offline); without a
    network, it shows this machine and a price book of list prices, marked as reference. List prices of more than 180
    days ago, and spot prices there of more than 60, are hidden. Credentials add live prices: see `gpubroker doctor`.
    """
    from broker.app.market.market import listing
    from broker.app.market.nearby import nearby
    from broker.app.market.offer_rows import OfferFilter, hidden_old, wanted_rows
    from broker.cli.prices import offer_groups, offer_view
    from broker.core.errors import InvalidInput
    from broker.core.market.offers import CapacityType

    terminal = Terminal.of(context)
    switches = {
        CapacityType.SPOT: given.spot,
        CapacityType.ON_DEMAND: given.on_demand,
        CapacityType.RESERVED: given.reserved,
        CapacityType.OWNED: given.owned,
    }
    machines = filters.machines(given.gpu or [])
    wanted = OfferFilter(
        counts={name: frozenset(counts) for name, counts in machines.items()},
        capacity_types=frozenset(kind for kind, on in switches.items() if on),
        instance_types=tuple(given.machine_type or ()),
        available=given.available,
        live=given.live,
        doubted=given.doubted,
        old=given.old,
        max_price=None if given.max_price is None else filters.price("--max-price", given.max_price),
    )
    dimensions = () if given.group_by is None else offer_groups.dimensions(given.group_by)
    if given.risk and dimensions:
        raise InvalidInput("--risk and --group-by cannot be combined", hint="remove one of them")
    broker, query = terminal.broker(), _query(machines, given.provider or [], given.region or [])
    first_look(terminal, broker, offline=given.offline, providers=given.provider or ())
    found = listing(broker, query)
    rows = wanted_rows(found.offers, found.now, wanted, given.sort)
    hidden = hidden_old(found.offers, found.now, wanted)
    near = {} if rows else nearby(broker, machines, found.offers)
    shown = None if given.every else given.limit if as_json else given.limit or _ROWS
    if dimensions:
        groups = offer_groups.groups(rows, dimensions)
        if as_json:
            terminal.answer(offer_groups.result(rows, groups[:shown], dimensions, found))
        else:
            table = offer_groups.table(terminal.out, groups[:shown], dimensions, len(groups), len(rows), found)
            terminal.show(*table)
    elif given.risk:
        from broker.app.market.risk import risks
        from broker.cli.prices import risk_view

        known = risks(broker, query)
        if given.sort is OfferOrder.INTERRUPTIONS:
            rows.sort(key=lambda row: known(row.offer))
        if as_json:
            from broker.app.results.risk import OfferRiskList

            terminal.answer(OfferRiskList.of(rows, found, shown, known))
        else:
            terminal.show(*risk_view.table(terminal.out, rows[:shown], len(rows), found, known))
    elif as_json:
        from broker.app.results.offers import OfferList

        terminal.answer(OfferList.of(rows, found, shown, hidden, near))
    else:
        terminal.show(*offer_view.table(terminal.out, rows[:shown], len(rows), found))
    if not as_json:
        terminal.show(*offer_view.hidden_prices(hidden), *offer_view.near_ones(near))


def _query(machines: dict[str, set[int]], providers: list[str], regions: list[str]) -> OfferQuery:
    from broker.core.market.offers import OfferQuery

    return OfferQuery(accelerators=tuple(sorted(machines)), providers=tuple(providers), regions=tuple(regions))
