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
    from broker.app.market.offer_rows import OfferFilter
    from broker.app.results.offers import OfferCounts
    from broker.remote.team_api import TeamApi

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
    capacity_type: filters.CapacityTypes = None
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
    days ago, and spot prices there of more than 60, are hidden. Credentials add live prices: see `gpubroker doctor`. A
    server lists its own offers and asks no provider; it shows at most 1,000 groups, risks, or rows in another order.
    """
    from broker.cli.prices import offer_view
    from broker.core.errors import InvalidInput

    terminal = Terminal.of(context)
    if given.risk and given.group_by is not None:
        raise InvalidInput("--risk and --group-by cannot be combined", hint="remove one of them")
    found = _found(terminal, given, None if given.every else given.limit if as_json else given.limit or _ROWS)
    terminal.result(found, lambda: offer_view.table(terminal.out, found))


def _wanted(given: OffersOptions) -> OfferFilter:
    from broker.app.market.offer_rows import OfferFilter
    from broker.core.market.offers import CapacityType

    switches = {
        CapacityType.SPOT: given.spot,
        CapacityType.ON_DEMAND: given.on_demand,
        CapacityType.RESERVED: given.reserved,
        CapacityType.OWNED: given.owned,
    }
    kinds = {kind for kind, on in switches.items() if on} | {*filters.capacity_types(given.capacity_type or ())}
    return OfferFilter(
        counts=filters.machines(given.gpu or ()),
        providers=tuple(given.provider or ()),
        regions=tuple(given.region or ()),
        capacity_types=frozenset(kinds),
        instance_types=tuple(given.machine_type or ()),
        available=given.available,
        live=given.live,
        doubted=given.doubted,
        old=given.old,
        max_price=None if given.max_price is None else filters.price("--max-price", given.max_price),
    )


def _found(terminal: Terminal, given: OffersOptions, limit: int | None) -> OfferCounts:
    wanted = _wanted(given)
    if terminal.through_server:
        return _of_server(terminal.api, wanted, given, limit)
    from broker.app.market import offer_lists

    by = None if given.group_by is None else offer_lists.dimensions(given.group_by, "--group-by")
    broker = terminal.broker()
    first_look(terminal, broker, offline=given.offline, providers=given.provider or ())
    if by is not None:
        return offer_lists.offer_groups(broker, wanted, by, limit)
    listed = offer_lists.offer_risks if given.risk else offer_lists.offer_list
    return listed(broker, wanted, given.sort, limit)


def _of_server(api: TeamApi, wanted: OfferFilter, given: OffersOptions, limit: int | None) -> OfferCounts:
    from broker.app.results.offers import OfferGroupList, OfferList
    from broker.app.results.risk import OfferRiskList
    from broker.server.paths import MOST_OFFERS

    asked = {
        "gpu": given.gpu,
        "provider": given.provider,
        "region": given.region,
        "capacity_type": sorted(wanted.capacity_types) or None,
        "machine_type": given.machine_type,
        "available": given.available or None,
        "live": given.live or None,
        "doubted": given.doubted or None,
        "old": given.old or None,
        "max_price": None if wanted.max_price is None else wanted.max_price.as_json(),
    }
    if given.group_by is not None:
        return api.fetch(OfferGroupList, "/offers/groups", by=given.group_by, limit=limit or MOST_OFFERS, **asked)
    if given.risk:
        return api.fetch(OfferRiskList, "/offers/risks", sort=given.sort.value, limit=limit or MOST_OFFERS, **asked)
    return api.whole(OfferList, "/offers", "offers", limit, MOST_OFFERS, sort=given.sort.value, **asked)
