"""Offers as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results.offers import OfferCounts, OfferGroupList, OfferGroupResult, OfferList, OfferResult
from broker.app.results.risk import OfferRiskList
from broker.cli.prices.status_view import converted
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listed
from broker.core.market.offers import Availability, CapacityType
from broker.core.values.money import Money

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_KINDS = {CapacityType.SPOT: "yellow", CapacityType.OWNED: "green", CapacityType.RESERVED: "cyan"}
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
    Availability.AVAILABLE: Text("yes", style="green"),
    Availability.UNAVAILABLE: Text("sold out", style="red"),
    Availability.NO_QUOTA: Text("no quota", style="red"),
    Availability.UNKNOWN: Text("unknown", style="dim"),
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
    if isinstance(found, OfferRiskList):
        from broker.cli.prices import risk_view

        return risk_view.table(console, found)
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
        yield Text(f"{hidden} hidden; --all shows them, `gpubroker prices book` checks them", style="dim")
    for name, others in found.nearby.items():
        yield Text(f"hint: no {name} is offered; near it: {', '.join(others)}", "cyan")
