"""`gpubroker offers`: GPU offers with price, location and availability."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from broker.cli import completion, filters
from broker.cli.filters import RowFilter
from broker.cli.options import AsJson, examples, expand_options
from broker.cli.prices.poll import Offline, poll_first_time
from broker.cli.prices.status import conversion_notes
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, table_parts
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.core.market.offer_order import OfferOrder

if TYPE_CHECKING:
    from broker.app.market.offer_documents import (
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

EXAMPLES = examples(
    "gpubroker offers --gpu H100:8 --spot",
    "gpubroker offers --gpu A100-80GB --gpu H100 --where 'region=us-*' --max-price '$4'",
    "gpubroker offers --gpu H100:8 --available --where price_kind=live --sort interruptions",
    "gpubroker offers --gpu H100:8 --spot --risk",
    "gpubroker offers --by gpu,provider --where provider=aws,provider=gcp,region=eu-* --json",
    "gpubroker offers --where provider=sandbox",
)

_DEFAULT_ROWS = 30
_ORDER = (
    "First where an engine runs jobs (jobs: yes; `gpubroker plan` checks your setup), then sold out, out of reach, old."
)
_NO_ENGINE = "No engine runs jobs on these offers; they are for comparison."
_OFFER_FILTER = RowFilter(
    provider=completion.providers,
    region=completion.regions,
    instance_type=completion.instance_types,
    capacity_type=completion.capacity_types,
    price_kind=completion.price_kinds,
)


@dataclass(frozen=True)
class OffersOptions:
    """The options of `offers`."""

    gpu: filters.GpuOption = None
    where: Annotated[list[str] | None, _OFFER_FILTER.option] = None
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
    sort: Annotated[OfferOrder, typer.Option(metavar="ORDER", help=f"{', '.join(OfferOrder)}.")] = OfferOrder.GPU_PRICE
    risk: Annotated[
        bool,
        typer.Option(
            "--risk", help="Show interruption rates, time until capacity returns, and the data behind the estimates."
        ),
    ] = False
    limit: filters.LimitOption = None
    every: Annotated[
        bool,
        typer.Option("--all", "-a", help="All rows, also reference prices older than 180 days (spot: 60)."),
    ] = False
    offline: Offline = False


@expand_options
def offers(context: typer.Context, given: OffersOptions, as_json: AsJson = False) -> None:
    """List GPU offers with price, location and availability: first where an engine runs jobs, cheapest GPU-hour first.

    Then come offers that are sold out, then those that no engine here reaches, then stale and old prices.

    The first use queries the providers that need no login and answer within seconds (not with --offline); without a
    network, it shows this machine and a price book of list prices, marked as reference. List prices older than 180
    days, and spot list prices older than 60 days, are hidden. Credentials add live prices: see `gpubroker doctor`. A
    server lists its own offers and queries no provider; with --by, --risk or --sort it shows at most 1,000 rows.
    """
    terminal = Terminal.of(context)
    if given.risk and given.by is not None:
        raise InvalidInput("--risk and --by cannot be combined", hint="remove one of them")
    offer_list = _load_offers(terminal, given, given.limit or (None if given.every or as_json else _DEFAULT_ROWS))
    by_reach = given.sort in (OfferOrder.GPU_PRICE, OfferOrder.PRICE) and given.by is None
    has_engine = any(offer.engine for offer in getattr(offer_list, "offers", ()))
    header = [Text(_ORDER if has_engine else _NO_ENGINE, style="dim")] if by_reach and offer_list.matching else []
    terminal.result(offer_list, lambda: [*header, *offer_lines(terminal.out, offer_list)])


def _load_offers(terminal: Terminal, given: OffersOptions, limit: int | None) -> OfferCounts:
    from broker.app.market import offer_lists
    from broker.app.market.offer_documents import OfferList
    from broker.app.market.offer_rows import OfferFilter
    from broker.app.use_cases import market

    conditions = {**_OFFER_FILTER.read(given.where), "gpu": given.gpu or []}
    if given.spot:
        conditions["capacity_type"] = [*conditions.get("capacity_type", []), "spot"]
    max_price = None if given.max_price is None else filters.price_option("--max-price", given.max_price)
    offer_filter = OfferFilter.of(
        conditions, gpus_from="--gpu", available=given.available, old=given.every, max_price=max_price
    )
    wanted = market.WantedOffers.of(
        offer_filter,
        given.gpu,
        price_kind=sorted(offer_filter.price_kinds),
        available=given.available,
        old=given.every,
        max_price=None if max_price is None else max_price.dollars,
    )
    all_rows = market.MAX_OFFERS
    if not terminal.through_server:
        all_rows = sys.maxsize
        if given.by is not None:
            offer_lists.parse_dimensions(given.by, "--by")
        poll_first_time(terminal, terminal.broker(), offline=given.offline, providers=offer_filter.providers)
    if given.by is not None:
        return terminal.ask(market.group_offers, wanted, given.by, limit or all_rows)
    if given.risk:
        return terminal.ask(market.offer_risks, wanted, given.sort, limit or all_rows)
    if terminal.through_server:
        parameters = {"sort": given.sort.value, **vars(wanted)}
        return terminal.api.whole(OfferList, "/offers", "offers", limit, market.MAX_OFFERS, **parameters)
    return offer_lists.list_offers(terminal.broker(), offer_filter, given.sort, limit)


_PURCHASE_TYPE_STYLES = {"spot": "yellow", "owned": "green", "reserved": "cyan"}
_PRICE_KIND_TEXTS = {
    "suspicious": Text("suspicious", style="red"),
    "reference": Text("ref", style="dim"),
    "stale": Text("stale", style="yellow"),
    "simulated": Text("simulated", style="magenta"),
    "imported": Text("imported", style="cyan"),
    "recorded": Text("recorded", style="cyan"),
    "live": Text("live", style="green"),
}
_AVAILABILITY_TEXTS = {
    "available": Text("yes", style="green"),
    "unavailable": Text("sold out", style="red"),
    "no_quota": Text("no quota", style="red"),
    "unknown": Text("unknown", style="dim"),
}


def price_kind_text(offer: OfferResult) -> Text:
    """The kind of price."""
    return _PRICE_KIND_TEXTS[offer.price_kind]


def _purchase_type_text(offer: OfferResult) -> Text:
    kind = formats.purchase_type(offer.capacity_type, offer.term_months)
    return Text(kind, style=_PURCHASE_TYPE_STYLES.get(offer.capacity_type, ""))


_OFFER_COLUMNS: tuple[ValueColumn[OfferResult], ...] = (
    ValueColumn("provider", lambda row: row.provider),
    ValueColumn("region", lambda row: row.region, 2),
    ValueColumn("zone", lambda row: row.zone or "", 9),
    ValueColumn("machine type", lambda row: row.instance_type, 5, folds=True),
    ValueColumn("GPU", lambda row: row.machine),
    ValueColumn("purchase type", _purchase_type_text),
    ValueColumn("jobs", lambda row: Text("yes", style="green") if row.engine else Text("no", style="dim"), 3),
    ValueColumn("$/GPU-h", lambda row: formats.rate(row.price_per_gpu_hour), align="right"),
    ValueColumn("$/h", lambda row: formats.rate(row.price_per_hour), 6, "right"),
    ValueColumn(
        "spot discount", lambda row: formats.percent(row.spot_discount) if row.spot_discount else "", 7, "right"
    ),
    ValueColumn("available", lambda row: _AVAILABILITY_TEXTS[row.availability], 4),
    ValueColumn(
        "interruptions/h",
        lambda row: "" if row.interruption_rate is None else f"{row.interruption_rate:.1%}",
        10,
        "right",
    ),
    ValueColumn("score", lambda row: "" if row.score is None else f"{row.score:.2g}", 11, "right"),
    # Always shown, even at 80 columns: a price without its age cannot be trusted.
    ValueColumn("age", lambda row: formats.age(row.age_seconds), 2, "right"),
    ValueColumn("source", lambda row: row.source, 8),
    ValueColumn("note", price_kind_text),
)


def offer_lines(console: Console, offer_list: OfferCounts) -> Iterator[RenderableType]:
    """The table of offers, of their risks, or of groups, and its footer."""
    from broker.app.market.offer_documents import OfferGroupList, OfferList, OfferRiskList

    if isinstance(offer_list, OfferRiskList):
        return _risk_lines(console, offer_list)
    assert isinstance(offer_list, OfferList | OfferGroupList)
    return (
        _offer_list_lines(console, offer_list)
        if isinstance(offer_list, OfferList)
        else _group_lines(console, offer_list)
    )


def _offer_list_lines(console: Console, offer_list: OfferList) -> Iterator[RenderableType]:
    offers = offer_list.offers
    if offers:
        yield from table_parts(console, _OFFER_COLUMNS, offers)
    if any(offer.reference for offer in offers):
        yield Text("ref: reference price from a published price list, not live; see its age", style="dim")
    if any(offer.price_kind == "stale" for offer in offers):
        yield Text("stale: older than the provider's maximum age; not used for launches", style="yellow")
    for doubt in sorted({offer.doubt for offer in offers if offer.doubt is not None}):
        yield Text(f"suspicious: {doubt.text}; not used for launches until accepted", style="red")
    names = {offer.provider for offer in offers}
    yield from conversion_notes({name: rates for name, rates in offer_list.converted.items() if name in names})
    yield from footer_lines(offer_list, len(offers))


def _group_lines(console: Console, group_list: OfferGroupList) -> Iterator[RenderableType]:

    def key(name: str) -> ValueColumn[OfferGroupResult]:
        return ValueColumn(name.replace("_", " "), lambda row: getattr(row, name))

    def price(best: OfferResult | None) -> Money | None:
        return (best.price_per_gpu_hour or best.price_per_hour) if best else None

    def cheapest_text(best: OfferResult | None) -> str:
        return f"{best.instance_type} in {best.provider}/{best.region}" if best else "none available"

    columns: tuple[ValueColumn[OfferGroupResult], ...] = (
        *map(key, group_list.group_by),
        ValueColumn("offers", lambda row: f"{row.offers:,}", 6, "right"),
        ValueColumn("min $/GPU-h", lambda row: formats.rate(price(row.cheapest)), align="right"),
        ValueColumn("max $/GPU-h", lambda row: formats.rate(row.max_price_per_gpu_hour), 5, "right"),
        ValueColumn("cheapest", lambda row: cheapest_text(row.cheapest), 2),
        ValueColumn(
            "purchase type", lambda row: formats.purchase_type(row.cheapest.capacity_type) if row.cheapest else "", 1
        ),
        ValueColumn("note", lambda row: price_kind_text(row.cheapest) if row.cheapest else "", 3),
    )
    if group_list.groups:
        yield from table_parts(console, columns, group_list.groups)
    yield from footer_lines(group_list, len(group_list.groups), group_list.matching_groups)


def footer_lines(offer_list: OfferCounts, shown_count: int, group_count: int | None = None) -> Iterator[Text]:
    """How many rows of how many are shown, how many reference prices are hidden because of their age, and offers near
    to a request without offers. ``group_count``: their number, if the rows are groups."""
    tail = (
        ""
        if shown_count == (offer_list.matching if group_count is None else group_count)
        else "; use --all to show all"
    )
    if not offer_list.total:
        line = "no offers are known; run `gpubroker prices poll`"
    elif not offer_list.matching:
        line = f"0 of {offer_list.total:,} offers match"
    elif group_count is None:
        known_text = f" ({offer_list.total:,} known)" if offer_list.total != offer_list.matching else ""
        line = f"{shown_count:,} of {offer_list.matching:,} matching offers shown{known_text}{tail}"
    else:
        line = f"{shown_count:,} of {formats.plural(group_count, 'group')} shown{tail}"
    yield Text(line, style="dim")
    if offer_list.old_hidden:
        hidden_text = formats.plural(offer_list.old_hidden, "old reference price")
        yield Text(f"{hidden_text} hidden; --all shows them", style="dim")
    for name, nearby_names in offer_list.nearby.items():
        yield Text(f"hint: no {name} is offered; near it: {', '.join(nearby_names)}", "cyan")


_UNKNOWN_LIFETIME = timedelta(days=100 * 365)  # a longer lifetime is shown as unknown
_RISK_COLUMNS: tuple[ValueColumn[OfferWithRisk], ...] = (
    ValueColumn("location", lambda row: f"{row.provider}/{row.zone or row.region}", folds=True),
    ValueColumn("machine type", lambda row: row.instance_type, 4, folds=True),
    ValueColumn("GPU", lambda row: row.machine),
    ValueColumn("purchase type", lambda row: formats.purchase_type(row.capacity_type)),
    ValueColumn("$/GPU-h", lambda row: formats.rate(row.price_per_gpu_hour), 3, "right"),
    ValueColumn(
        "interruptions/h",
        lambda row: f"{row.risk.interruptions_per_hour:.2g}" if row.risk.interruptions_per_hour else "never",
        align="right",
    ),
    ValueColumn("mean lifetime", lambda row: _lifetime_text(row.risk.mean_life), 1, "right"),
    ValueColumn("left after 3 h", lambda row: _lifetime_text(row.risk.left_after_3_hours), 5, "right"),
    ValueColumn(
        "returns in",
        lambda row: formats.length(row.risk.time_to_return) if row.capacity_type == "spot" else formats.NO_VALUE,
        2,
        "right",
    ),
    ValueColumn("estimated from", lambda row: _estimate_source(row.risk), folds=True),
    ValueColumn("note", price_kind_text),
)


def _risk_lines(console: Console, risk_list: OfferRiskList) -> Iterator[RenderableType]:
    """The table, the meaning of its columns, and the footer."""
    if risk_list.offers:
        yield from table_parts(console, _RISK_COLUMNS, risk_list.offers)
        yield Text(
            "interruptions/h: per machine; left after 3 h: mean remaining lifetime of a machine that has run for 3 h; "
            "estimated from: interruptions in the machine-hours of the last three weeks, recent hours weighted more",
            style="dim",
        )
    yield from footer_lines(risk_list, len(risk_list.offers))


def _lifetime_text(time: timedelta | None) -> str:
    return formats.NO_VALUE if time is None or time > _UNKNOWN_LIFETIME else formats.length(time)


def _estimate_source(risk: RiskResult) -> str:
    def losses_text(evidence: RiskEvidence) -> str:
        return f"{evidence.losses:,.0f} in {evidence.hours:,.0f} h"

    match risk.basis.value:
        case "own_history":
            return losses_text(risk.own)
        case "family_history":
            return f"similar pools: {losses_text(risk.family)}"
        case "provider":
            return "the provider"
        case _:
            return "assumed"
