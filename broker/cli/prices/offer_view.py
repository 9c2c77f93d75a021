"""Offers as a table and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.text import Text

from broker.cli.render import formats
from broker.cli.render.tables import Column, fitting, left_out
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.values.money import Money

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.market.market import Listing


@dataclass(frozen=True, slots=True)
class Row:
    """An offer with derived figures. ``discount``: of a spot price relative to the cheapest on-demand price of the same
    machine in the same region, as a fraction."""

    offer: Offer
    age: timedelta
    stale: bool
    discount: float | None

    @property
    def per_gpu(self) -> Money | None:
        return self.offer.price_per_gpu


def rows(offers: Iterable[Offer], now: datetime) -> list[Row]:
    """Every offer as a row. Spot discounts are computed from these offers only."""
    listed = list(offers)
    on_demand: dict[tuple[object, ...], Money] = {}
    for offer in listed:
        if offer.capacity_type is CapacityType.ON_DEMAND and offer.price is not None and offer.price.micros > 0:
            key = _same(offer)
            on_demand[key] = min(on_demand.get(key, offer.price), offer.price)
    return [_row(offer, on_demand, now) for offer in listed]


def _same(offer: Offer) -> tuple[object, ...]:
    return offer.provider, offer.region, offer.instance_type, offer.accelerator, offer.count


def _row(offer: Offer, on_demand: Mapping[tuple[object, ...], Money], now: datetime) -> Row:
    discount = None
    if offer.capacity_type is CapacityType.SPOT and offer.price is not None:
        undiscounted = on_demand.get(_same(offer))
        discount = None if undiscounted is None else 1 - offer.price.micros / undiscounted.micros
    age = now - offer.as_of
    stale = not offer.reference and offer.max_age is not None and age > offer.max_age
    return Row(offer, age, stale, discount)


def sort_key(name: str) -> Callable[[Row], Any]:
    """The sort key. Rows without the figure come last; ties are broken by the price of a GPU-hour, then by name. Called
    for every known offer, so it formats no text."""

    def price(row: Row) -> tuple[bool, int, str, str, str, str, str]:
        offer = row.offer
        amount = row.per_gpu or offer.price
        names = offer.provider, offer.zone or offer.region, offer.instance_type, offer.capacity_type, offer.source
        return amount is None, amount.micros if amount else 0, *names

    firsts: dict[str, Callable[[Row], Any]] = {
        "gpu-price": lambda row: row.offer.count == 0,
        "price": lambda row: (row.offer.price is None, row.offer.price.micros if row.offer.price else 0),
        "provider": lambda row: (row.offer.provider, row.offer.region),
        "gpu": lambda row: (row.offer.accelerator or "~", row.offer.count),
        "age": lambda row: row.age,
        "interruptions": lambda row: (row.offer.interruption_rate is None, row.offer.interruption_rate or 0),
    }
    return lambda row: (firsts[name](row), *price(row))


def machine_of(offer: Offer) -> dict[str, Any]:
    """The fields that identify an offer's machine in every JSON document."""
    return {
        "provider": offer.provider,
        "region": offer.region,
        "zone": offer.zone,
        "instance_type": offer.instance_type,
        "accelerator": offer.accelerator,
        "count": offer.count,
        "capacity_type": offer.capacity_type,
        "term_months": offer.term_months,
    }


def as_json(row: Row) -> dict[str, Any]:
    """One offer in JSON."""
    offer = row.offer
    return {
        **machine_of(offer),
        "price_per_hour": offer.price,
        "price_per_gpu_hour": row.per_gpu,
        "spot_discount": row.discount,
        "availability": offer.availability,
        "unavailable_because": offer.unavailable_because,
        "score": offer.score,
        "interruption_rate": offer.interruption_rate,
        "as_of": offer.as_of,
        "age_seconds": row.age,
        "stale": row.stale,
        "reference": offer.reference,
        "source": offer.source,
        "engine": offer.engine,
        "money": offer.money,
        "cpus": offer.cpus,
        "memory_gib": offer.memory_gib,
        "interconnect": offer.interconnect,
        "slots": offer.slots,
    }


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
    Column("age", 3, align="right"),  # a price without its age cannot be trusted, so this column fits at 80 columns
    Column("source", 8),
    Column("note"),
)


def table(console: Console, shown: Sequence[Row], matching: int, found: Listing) -> list[RenderableType]:
    """The table and its footer."""
    built, hidden = fitting(console, _COLUMNS, [_cells(row) for row in shown])
    parts: list[RenderableType] = [built] if shown else []
    if any(row.offer.reference for row in shown):
        parts.append(Text("ref: reference price from a published price list, not live; see its age", style="dim"))
    if any(row.stale for row in shown):
        parts.append(Text("stale: older than the provider's maximum age; not used for launches", style="yellow"))
    return [*parts, *footer(len(shown), matching, "offers", hidden, found)]


def footer(shown: int, matching: int, what: str, hidden: Sequence[str], found: Listing) -> list[RenderableType]:
    """How many rows (``what``: offers or groups) of how many are shown, and the hidden columns."""
    lines = [left_out(hidden)] if hidden else []
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


def _cells(row: Row) -> list[str | Text]:
    offer = row.offer
    kind = offer.capacity_type.value.replace("_", "-")
    term = f" {offer.term_months}m" if offer.term_months else ""
    return [
        offer.provider,
        offer.region,
        offer.zone or "",
        offer.instance_type,
        offer.machine,
        Text(f"{kind}{term}", style=_STYLES.get(offer.capacity_type, "")),
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


def note(row: Row) -> Text:
    """The kind of price: reference, stale, simulated, or live (the ones that ``--live`` keeps)."""
    if row.offer.reference:
        return Text("ref", style="dim")
    if row.stale:
        return Text("stale", style="yellow")
    if row.offer.money == "sandbox":
        return Text("simulated", style="magenta")
    return Text("live", style="green")


def document(listed: Sequence[Row], found: Listing, limit: int | None) -> dict[str, Any]:
    """The document of `gpubroker offers --json`: the matching rows."""
    base = {"as_of": found.now, "matching": len(listed), "total": found.total}
    return base | {"offers": [as_json(row) for row in listed[:limit]]}
