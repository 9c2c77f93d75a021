"""`gpubroker offers`: GPU offers with price, location and availability."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from broker.cli import completion, filters
from broker.cli.filters import RowFilter
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.prices.poll import Offline, first_look
from broker.cli.prices.status import converted
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listed
from broker.cli.terminal import Terminal
from broker.core.market.offer_order import OfferOrder

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.market.offer_rows import OfferFilter
    from broker.app.results.offers import (
        OfferCounts,
        OfferGroupList,
        OfferGroupResult,
        OfferList,
        OfferResult,
        OfferRiskList,
        OfferWithRisk,
        RiskEvidence,
        RiskResult,
    )
    from broker.core.values.money import Money
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
_ORDER = "First offers where jobs can start, then sold out ones, then those out of reach; each cheapest first."
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
    """List GPU offers with price, location and availability: first those where jobs can start, cheapest GPU-hour first.

    Then come offers that are sold out, then those that no engine here reaches.

    The first use asks the providers that need no login and answer within seconds (not with --offline); without a
    network, it shows this machine and a price book of list prices, marked as reference. List prices of more than 180
    days ago, and spot prices there of more than 60, are hidden. Credentials add live prices: see `gpubroker doctor`. A
    server lists its own offers and asks no provider; it shows at most 1,000 groups, risks, or rows in another order.
    """
    from broker.core.errors import InvalidInput

    terminal = Terminal.of(context)
    if given.risk and given.by is not None:
        raise InvalidInput("--risk and --by cannot be combined", hint="remove one of them")
    found = _found(terminal, given, given.limit or (None if given.every or as_json else _ROWS))
    by_reach = given.sort in (OfferOrder.GPU_PRICE, OfferOrder.PRICE) and given.by is None
    header = [Text(_ORDER, style="dim")] if by_reach and found.matching else []
    terminal.result(found, lambda: [*header, *table(terminal.out, found)])


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
    from broker.app.results.offers import OfferGroupList, OfferList, OfferRiskList
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


_KINDS = {"spot": "yellow", "owned": "green", "reserved": "cyan"}
_NOTES = {
    "doubted": Text("doubted", style="red"),
    "reference": Text("ref", style="dim"),
    "stale": Text("stale", style="yellow"),
    "simulated": Text("simulated", style="magenta"),
    "imported": Text("imported", style="cyan"),
    "recorded": Text("recorded", style="cyan"),
    "live": Text("live", style="green"),
}
_AVAILABLE = {
    "available": Text("yes", style="green"),
    "unavailable": Text("sold out", style="red"),
    "no_quota": Text("no quota", style="red"),
    "unknown": Text("unknown", style="dim"),
}


def note(offer: OfferResult) -> Text:
    """The kind of price."""
    return _NOTES[offer.price_kind]


def _kind(offer: OfferResult) -> Text:
    kind = formats.purchase_type(offer.capacity_type, offer.term_months)
    return Text(kind, style=_KINDS.get(offer.capacity_type, ""))


def _percent(part: float | None) -> str:
    return "" if part is None else formats.percent(part)


_COLUMNS: tuple[ValueColumn[OfferResult], ...] = (
    ValueColumn("provider", lambda one: one.provider),
    ValueColumn("region", lambda one: one.region, 2),
    ValueColumn("zone", lambda one: one.zone or "", 9),
    ValueColumn("machine type", lambda one: one.instance_type, 5, folds=True),
    ValueColumn("GPU", lambda one: one.machine),
    ValueColumn("purchase type", _kind),
    ValueColumn("$/GPU-h", lambda one: formats.rate(one.price_per_gpu_hour), align="right"),
    ValueColumn("$/h", lambda one: formats.rate(one.price_per_hour), 6, "right"),
    ValueColumn("spot discount", lambda one: _percent(one.spot_discount), 7, "right"),
    ValueColumn("available", lambda one: _AVAILABLE[one.availability], 4),
    ValueColumn(
        "interruptions/h",
        lambda one: "" if one.interruption_rate is None else f"{one.interruption_rate:.1%}",
        10,
        "right",
    ),
    ValueColumn("score", lambda one: "" if one.score is None else f"{one.score:.2g}", 11, "right"),
    # Always shown, even at 80 columns: a price without its age cannot be trusted.
    ValueColumn("age", lambda one: formats.age(one.age_seconds), 3, "right"),
    ValueColumn("source", lambda one: one.source, 8),
    ValueColumn("note", note),
)


def table(console: Console, found: OfferCounts) -> Iterator[RenderableType]:
    """The table of offers, of their risks, or of groups, and its footer."""
    from broker.app.results.offers import OfferGroupList, OfferList, OfferRiskList

    if isinstance(found, OfferRiskList):
        return _risks(console, found)
    assert isinstance(found, OfferList | OfferGroupList)
    return _offers(console, found) if isinstance(found, OfferList) else _groups(console, found)


def _offers(console: Console, found: OfferList) -> Iterator[RenderableType]:
    shown = found.offers
    if shown:
        yield from listed(console, _COLUMNS, shown)
    if any(one.reference for one in shown):
        yield Text("ref: reference price from a published price list, not live; see its age", style="dim")
    if any(one.stale for one in shown):
        yield Text("stale: older than the provider's maximum age; not used for launches", style="yellow")
    for doubt in sorted({one.doubt for one in shown if one.doubt is not None}):
        yield Text(f"doubted: {doubt.text}; not used for launches until accepted", style="red")
    names = {one.provider for one in shown}
    yield from converted({name: rates for name, rates in found.converted.items() if name in names})
    yield from footer(found, len(shown))


def _groups(console: Console, found: OfferGroupList) -> Iterator[RenderableType]:

    def key(name: str) -> ValueColumn[OfferGroupResult]:
        return ValueColumn(name.replace("_", " "), lambda one: getattr(one, name))

    def price(best: OfferResult | None) -> Money | None:
        return (best.price_per_gpu_hour or best.price_per_hour) if best else None

    def of_cheapest(best: OfferResult | None) -> str:
        return f"{best.instance_type} in {best.provider}/{best.region}" if best else "none available"

    columns: tuple[ValueColumn[OfferGroupResult], ...] = (
        *map(key, found.group_by),
        ValueColumn("offers", lambda one: f"{one.offers:,}", 6, "right"),
        ValueColumn(
            "min $/GPU-h",
            lambda one: formats.rate(price(one.cheapest)),
            align="right",
        ),
        ValueColumn("max $/GPU-h", lambda one: formats.rate(one.max_price_per_gpu_hour), 5, "right"),
        ValueColumn("cheapest", lambda one: of_cheapest(one.cheapest), 2),
        ValueColumn(
            "purchase type", lambda one: formats.purchase_type(one.cheapest.capacity_type) if one.cheapest else "", 1
        ),
        ValueColumn("note", lambda one: note(one.cheapest) if one.cheapest else "", 3),
    )
    if found.groups:
        yield from listed(console, columns, found.groups)
    yield from footer(found, len(found.groups), found.matching_groups)


def footer(found: OfferCounts, shown: int, groups: int | None = None) -> Iterator[Text]:
    """How many rows of how many are shown, how many reference prices are hidden because of their age, and offers near
    to a request without offers. ``groups``: their number, if the rows are groups."""
    tail = "" if shown == (found.matching if groups is None else groups) else "; use --all to show all"
    if not found.total:
        line = "no offers are known; run `gpubroker prices poll`"
    elif not found.matching:
        line = f"0 of {found.total:,} offers match"
    elif groups is None:
        more = f" ({found.total:,} known)" if found.total != found.matching else ""
        line = f"{shown:,} of {found.matching:,} matching offers shown{more}{tail}"
    else:
        line = f"{shown:,} of {formats.plural(groups, 'group')} shown{tail}"
    yield Text(line, style="dim")
    if found.old_hidden:
        hidden = formats.plural(found.old_hidden, "old reference price")
        yield Text(f"{hidden} hidden; --all shows them", style="dim")
    for name, others in found.nearby.items():
        yield Text(f"hint: no {name} is offered; near it: {', '.join(others)}", "cyan")


_LONG = timedelta(days=100 * 365)  # a longer lifetime is shown as unknown
_RISK_COLUMNS: tuple[ValueColumn[OfferWithRisk], ...] = (
    ValueColumn("location", lambda one: f"{one.provider}/{one.zone or one.region}", folds=True),
    ValueColumn("machine type", lambda one: one.instance_type, 4, folds=True),
    ValueColumn("GPU", lambda one: one.machine),
    ValueColumn("purchase type", lambda one: formats.purchase_type(one.capacity_type)),
    ValueColumn("$/GPU-h", lambda one: formats.rate(one.price_per_gpu_hour), 3, "right"),
    ValueColumn(
        "interruptions/h",
        lambda one: f"{one.risk.interruptions_per_hour:.2g}" if one.risk.interruptions_per_hour else "never",
        align="right",
    ),
    ValueColumn("mean lifetime", lambda one: _life(one.risk.mean_life), 1, "right"),
    ValueColumn("left after 3 h", lambda one: _life(one.risk.left_after_3_hours), 5, "right"),
    ValueColumn(
        "returns in",
        lambda one: formats.length(one.risk.time_to_return) if one.capacity_type == "spot" else formats.NOTHING,
        2,
        "right",
    ),
    ValueColumn("estimated from", lambda one: _estimated_from(one.risk), folds=True),
    ValueColumn("note", note),
)


def _risks(console: Console, found: OfferRiskList) -> Iterator[RenderableType]:
    """The table, the meaning of its columns, and the footer."""
    if found.offers:
        yield from listed(console, _RISK_COLUMNS, found.offers)
        yield Text(
            "interruptions/h: per machine; left after 3 h: mean remaining lifetime of a machine that has run for 3 h; "
            "estimated from: interruptions in the machine-hours of the last three weeks, recent hours weighted more",
            style="dim",
        )
    yield from footer(found, len(found.offers))


def _life(time: timedelta | None) -> str:
    return formats.NOTHING if time is None or time > _LONG else formats.length(time)


def _estimated_from(risk: RiskResult) -> str:
    def seen(evidence: RiskEvidence) -> str:
        return f"{evidence.losses:,.0f} in {evidence.hours:,.0f} h"

    match risk.basis.value:
        case "own_history":
            return seen(risk.own)
        case "family_history":
            return f"similar pools: {seen(risk.family)}"
        case "provider":
            return "the provider"
        case _:
            return "assumed"
