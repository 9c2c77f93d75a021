"""Offers as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.jobs.recorded_capacity import is_recorded
from broker.app.market.offer_rows import ListedOffer
from broker.cli.prices.status_view import converted
from broker.cli.render import formats
from broker.cli.render.tables import Column, fitted
from broker.core.market.offers import Availability, CapacityType, Offer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.market.market import OfferListing


_COLUMNS = (
    Column("provider"),
    Column("region", 2),
    Column("zone", 9),
    Column("machine type", 5, folds=True),
    Column("GPU"),
    Column("purchase type"),
    Column("$/GPU-h", align="right"),
    Column("$/h", 6, align="right"),
    Column("spot discount", 7, align="right"),
    Column("available", 4),
    Column("interruptions/h", 10, align="right"),
    Column("score", 11, align="right"),
    Column("age", 3, align="right"),  # always shown, even at 80 columns: a price without its age cannot be trusted
    Column("source", 8),
    Column("note"),
)


def table(console: Console, shown: Sequence[ListedOffer], matching: int, found: OfferListing) -> list[RenderableType]:
    """The table and its footer."""
    parts = fitted(console, _COLUMNS, [_cells(row) for row in shown]) if shown else []
    if any(row.offer.reference for row in shown):
        parts.append(Text("ref: reference price from a published price list, not live; see its age", style="dim"))
    if any(row.stale for row in shown):
        parts.append(Text("stale: older than the provider's maximum age; not used for launches", style="yellow"))
    for doubt in sorted({row.offer.doubt for row in shown if row.offer.doubt is not None}):
        parts.append(Text(f"doubted: {doubt.text}; not used for launches until accepted", style="red"))
    names = {row.offer.provider for row in shown}
    parts += converted({name: rates for name, rates in found.converted.items() if name in names})
    return [*parts, *footer(len(shown), matching, "offers", found)]


def hidden_prices(number: int) -> list[Text]:
    """How many reference prices are hidden because of their age; nothing if none is."""
    if not number:
        return []
    text = (
        f"{formats.plural(number, 'old reference price')} hidden; --old shows them, `gpubroker prices book` checks them"
    )
    return [Text(text, style="dim")]


def near_ones(near: Mapping[str, Sequence[str]]) -> list[Text]:
    """Offers similar to a request without offers."""
    return [Text(f"hint: no {name} is offered; near it: {', '.join(others)}", "cyan") for name, others in near.items()]


def footer(shown: int, matching: int, what: str, found: OfferListing) -> list[RenderableType]:
    """How many rows (``what``: offers or groups) of how many are shown."""
    lines = []
    tail = "" if shown == matching else "; use --all to show all"
    if not found.total:
        lines.append("no offers are known; run `gpubroker prices poll`")
    elif not matching:
        lines.append(f"0 of {found.total:,} offers match")
    elif what == "offers":
        more = f" ({found.total:,} known)" if found.total != matching else ""
        lines.append(f"{shown:,} of {matching:,} matching offers shown{more}{tail}")
    else:
        lines.append(f"{shown:,} of {formats.plural(matching, 'group')} shown{tail}")
    return [Text(line, style="dim") for line in lines]


def _cells(row: ListedOffer) -> list[str | Text]:
    offer = row.offer
    kind = formats.purchase_type(offer.capacity_type, offer.term_months)
    return [
        offer.provider,
        offer.region,
        offer.zone or "",
        offer.instance_type,
        offer.machine,
        Text(kind, style=_STYLES.get(offer.capacity_type, "")),
        formats.rate(row.per_gpu),
        formats.rate(offer.price),
        "" if row.discount is None else formats.percent(row.discount),
        _available(offer),
        "" if offer.interruption_rate is None else f"{offer.interruption_rate:.1%}",
        "" if offer.score is None else f"{offer.score:.2g}",
        formats.age(row.age),
        offer.source,
        note(row),
    ]


_STYLES = {CapacityType.SPOT: "yellow", CapacityType.OWNED: "green", CapacityType.RESERVED: "cyan"}


def _available(offer: Offer) -> Text:
    words_for = {
        Availability.AVAILABLE: ("yes", "green"),
        Availability.UNAVAILABLE: ("sold out", "red"),
        Availability.NO_QUOTA: ("no quota", "red"),
        Availability.UNKNOWN: ("unknown", "dim"),
    }
    return Text(*words_for[offer.availability])


def note(row: ListedOffer) -> Text:
    """The kind of price: reference, stale, simulated, imported, recorded, or live (what ``--live`` keeps)."""
    if row.offer.doubt is not None:
        return Text("doubted", style="red")
    if row.offer.reference:
        return Text("ref", style="dim")
    if row.stale:
        return Text("stale", style="yellow")
    if row.offer.money == "sandbox":
        return Text("simulated", style="magenta")
    if row.offer.imported:
        return Text("imported", style="cyan")
    if is_recorded(row.offer):
        return Text("recorded", style="cyan")
    return Text("live", style="green")
