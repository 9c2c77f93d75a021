"""`gpubroker offers`: GPU offers with price, location and availability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import completion, filters
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.prices.first_look import Offline, first_look
from broker.cli.terminal import Terminal
from broker.cli.where import RowFilter
from broker.core.market.offer_order import OfferOrder

if TYPE_CHECKING:
    from broker.app.market.offer_rows import OfferFilter
    from broker.app.results.offers import OfferCounts
    from broker.remote.team_api import TeamApi

EXAMPLES = examples(
    "gpubroker offers --gpu H100:8 --spot",
    "gpubroker offers --gpu A100-80GB --gpu H100 --where 'region=us-*' --max-price '$4'",
    "gpubroker offers --gpu H100:8 --available --where price_kind=live --sort interruptions",
    "gpubroker offers --gpu H100:8 --spot --risk",
    "gpubroker offers --by gpu,provider --where provider=aws,provider=gcp,region=eu-* --json",
    "gpubroker offers --where provider=sandbox",
)

_ROWS = 30
_OFFERS = RowFilter(
    provider=completion.providers,
    region=completion.regions,
    instance_type=completion.instance_types,
    capacity_type=completion.capacity_types,
    price_kind=completion.price_kinds,
)


@dataclass(frozen=True)
class OffersOptions:
    """The options of `offers`."""

    gpu: filters.Gpus = None
    where: Annotated[list[str] | None, _OFFERS.option] = None
    spot: Annotated[bool, typer.Option("--spot", help="Only spot offers.")] = False
    available: Annotated[
        bool, typer.Option("--available", help="Only offers that the provider reports as available.")
    ] = False
    max_price: Annotated[
        str | None, typer.Option(metavar="USD", help="Maximum price per GPU-hour, such as $4 or 4.")
    ] = None
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
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
    every: Annotated[
        bool,
        typer.Option("--all", "-a", help="All rows, also reference prices of more than 180 days ago (spot: 60)."),
    ] = False
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
    if given.risk and given.by is not None:
        raise InvalidInput("--risk and --by cannot be combined", hint="remove one of them")
    found = _found(terminal, given, given.limit or (None if given.every or as_json else _ROWS))
    terminal.result(found, lambda: offer_view.table(terminal.out, found))


def _found(terminal: Terminal, given: OffersOptions, limit: int | None) -> OfferCounts:
    from broker.app.market.offer_rows import OfferFilter

    asked = {**_OFFERS.read(given.where), "gpu": given.gpu or []}
    if given.spot:
        asked["capacity_type"] = [*asked.get("capacity_type", []), "spot"]
    max_price = None if given.max_price is None else filters.price("--max-price", given.max_price)
    wanted = OfferFilter.of(asked, gpus_from="--gpu", available=given.available, old=given.every, max_price=max_price)
    if terminal.through_server:
        return _of_server(terminal.api, wanted, given, limit)
    from broker.app.market import offer_lists

    by = None if given.by is None else offer_lists.dimensions(given.by, "--by")
    broker = terminal.broker()
    first_look(terminal, broker, offline=given.offline, providers=wanted.providers)
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
        "provider": wanted.providers,
        "region": wanted.regions,
        "instance_type": wanted.instance_types,
        "capacity_type": sorted(wanted.capacity_types),
        "price_kind": sorted(wanted.price_kinds),
        "available": given.available or None,
        "old": given.every or None,
        "max_price": None if wanted.max_price is None else wanted.max_price.as_json(),
    }
    if given.by is not None:
        return api.fetch(OfferGroupList, "/offers/groups", by=given.by, limit=limit or MOST_OFFERS, **asked)
    if given.risk:
        return api.fetch(OfferRiskList, "/offers/risks", sort=given.sort.value, limit=limit or MOST_OFFERS, **asked)
    return api.whole(OfferList, "/offers", "offers", limit, MOST_OFFERS, sort=given.sort.value, **asked)
