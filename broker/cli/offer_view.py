"""Offers on the screen and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.text import Text

from broker.cli import words
from broker.cli.tables import Column, fitting, left_out
from broker.core.errors import UnknownName
from broker.core.money import Money
from broker.core.offers import Availability, CapacityType, Offer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.market import Listing


@dataclass(frozen=True, slots=True)
class Row:
    """An offer with what a reader wants to know beside it. ``discount``: of a spot price against the cheapest
    on-demand price of the same machine in the same region, as a part of one."""

    offer: Offer
    age: timedelta
    stale: bool
    discount: float | None

    @property
    def per_gpu(self) -> Money | None:
        return self.offer.price_per_gpu


def rows(offers: Iterable[Offer], now: datetime) -> list[Row]:
    """Every offer as a row. Spot discounts are found among these offers."""
    listed = list(offers)
    on_demand: dict[tuple[str, str, str, str], Money] = {}
    for offer in listed:
        if offer.capacity_type is CapacityType.ON_DEMAND and offer.price is not None and offer.price.micros > 0:
            key = _same(offer)
            on_demand[key] = min(on_demand.get(key, offer.price), offer.price)
    return [_row(offer, on_demand.get(_same(offer)), now) for offer in listed]


def _same(offer: Offer) -> tuple[str, str, str, str]:
    return offer.provider, offer.region, offer.instance_type, offer.machine


def _row(offer: Offer, on_demand: Money | None, now: datetime) -> Row:
    discount = None
    if offer.capacity_type is CapacityType.SPOT and offer.price is not None and on_demand is not None:
        discount = 1 - offer.price.micros / on_demand.micros
    age = now - offer.as_of
    stale = not offer.reference and offer.max_age is not None and age > offer.max_age
    return Row(offer, age, stale, discount)


def sort_key(name: str) -> Callable[[Row], Any]:
    """How rows are ordered; rows without the figure come last, the cheaper GPU-hour breaks ties."""

    def price(row: Row) -> tuple[bool, int, str]:
        amount = row.per_gpu or row.offer.price
        return amount is None, amount.micros if amount else 0, row.offer.id

    firsts: dict[str, Callable[[Row], Any]] = {
        "gpu-price": lambda row: row.offer.count == 0,
        "price": lambda row: (row.offer.price is None, row.offer.price.micros if row.offer.price else 0),
        "provider": lambda row: (row.offer.provider, row.offer.region),
        "gpu": lambda row: (row.offer.accelerator or "~", row.offer.count),
        "age": lambda row: row.age,
        "interruptions": lambda row: (row.offer.interruption_rate is None, row.offer.interruption_rate or 0),
    }
    return lambda row: (firsts[name](row), *price(row))


def as_json(row: Row) -> dict[str, Any]:
    """One offer of the document."""
    offer = row.offer
    return {
        "provider": offer.provider,
        "region": offer.region,
        "zone": offer.zone,
        "instance_type": offer.instance_type,
        "accelerator": offer.accelerator,
        "count": offer.count,
        "capacity_type": offer.capacity_type,
        "term_months": offer.term_months,
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
    Column("machine type", 4),
    Column("GPU"),
    Column("had as"),
    Column("$/GPU-h", align="right"),
    Column("$/h", 5, align="right"),
    Column("spot saves", 6, align="right"),
    Column("available", 3),
    Column("lost per h", 10, align="right"),
    Column("age", 7, align="right"),
    Column("source", 8),
    Column("note"),
)


def table(console: Console, shown: Sequence[Row], matching: int, found: Listing) -> list[RenderableType]:
    """The table and its footer."""
    built, hidden = fitting(console, _COLUMNS, [_cells(row) for row in shown])
    parts: list[RenderableType] = [built] if shown else []
    if any(row.offer.reference for row in shown):
        parts.append(Text("ref: reference, not live: a list price somebody wrote down; see its age", style="dim"))
    if any(row.stale for row in shown):
        parts.append(Text("stale: older than its provider's limit; it is not launched on", style="yellow"))
    return [*parts, *_footer(len(shown), matching, "offers", hidden, found)]


def _footer(shown: int, matching: int, what: str, hidden: Sequence[str], found: Listing) -> list[RenderableType]:
    lines = [left_out(hidden)] if hidden else []
    tail = "" if shown == matching else "; --all shows every one"
    if not found.total:
        lines.append("no offers are known; ask for some with `gpubroker prices poll`")
    elif not matching:
        lines.append(f"shown 0 of {found.total:,} offers: none matches")
    elif what == "offers":
        more = f" ({found.total:,} known in all)" if found.total != matching else ""
        lines.append(f"shown {shown:,} of {matching:,} offers{more}{tail}")
    else:
        lines.append(f"shown {shown:,} of {words.plural(matching, 'group')}{tail}")
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
        words.rate(row.per_gpu),
        words.rate(offer.price),
        "" if row.discount is None else words.percent(row.discount),
        _available(offer),
        "" if offer.interruption_rate is None else f"{offer.interruption_rate:.1%}",
        words.age(row.age),
        offer.source,
        _note(row),
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


def _note(row: Row) -> Text:
    if row.offer.reference:
        return Text("ref", style="dim")
    if row.stale:
        return Text("stale", style="yellow")
    if row.offer.money == "sandbox":
        return Text("simulated", style="magenta")
    return Text("")


# --- groups -----------------------------------------------------------------------------------------------------------

_DIMENSIONS: dict[str, Callable[[Offer], str]] = {
    "gpu": lambda offer: offer.accelerator or "cpu",
    "machine": lambda offer: offer.machine,
    "provider": lambda offer: offer.provider,
    "region": lambda offer: offer.region,
    "zone": lambda offer: offer.zone or "",
    "instance_type": lambda offer: offer.instance_type,
    "capacity_type": lambda offer: offer.capacity_type.value,
}


@dataclass(frozen=True, slots=True)
class Group:
    """Offers that are alike in some dimensions, and the cheapest GPU-hour among those that can be had."""

    key: tuple[str, ...]
    count: int
    cheapest: Row | None
    dearest: Money | None


def dimensions(text: str) -> tuple[str, ...]:
    """``gpu,provider``. Raises `UnknownName`."""
    names = tuple(dict.fromkeys(name.strip().replace("-", "_") for name in text.split(",") if name.strip()))
    for name in names:
        if name not in _DIMENSIONS:
            raise UnknownName("dimension", name, _DIMENSIONS)
    return names


def groups(listed: Sequence[Row], by: Sequence[str]) -> list[Group]:
    """One group for each combination that occurs, cheapest first. ``listed`` is sorted by price of a GPU-hour or not;
    sold-out offers count, but are never the cheapest."""
    members: dict[tuple[str, ...], list[Row]] = {}
    for row in listed:
        members.setdefault(tuple(_DIMENSIONS[name](row.offer) for name in by), []).append(row)
    found = [_group(key, grouped) for key, grouped in members.items()]

    def order(group: Group) -> tuple[bool, int, tuple[str, ...]]:
        price = group.cheapest and (group.cheapest.per_gpu or group.cheapest.offer.price)
        return group.cheapest is None or not group.cheapest.offer.count, price.micros if price else 0, group.key

    return sorted(found, key=order)


def _group(key: tuple[str, ...], grouped: Sequence[Row]) -> Group:
    out = (Availability.UNAVAILABLE, Availability.NO_QUOTA)
    priced = [row for row in grouped if row.offer.price is not None]
    prices = [row.per_gpu for row in priced if row.per_gpu is not None]
    to_be_had = [row for row in priced if row.offer.availability not in out]
    return Group(
        key=key,
        count=len(grouped),
        cheapest=min(to_be_had, key=sort_key("gpu-price"), default=None),
        dearest=max(prices, default=None),
    )


def group_table(
    console: Console, shown: Sequence[Group], by: Sequence[str], total: int, matching: int, found: Listing
) -> list[RenderableType]:
    """The table of groups and its footer."""
    columns = (
        *(Column(name.replace("_", " ")) for name in by),
        Column("offers", 6, align="right"),
        Column("from $/GPU-h", align="right"),
        Column("to $/GPU-h", 5, align="right"),
        Column("cheapest", 2),
        Column("had as", 1),
        Column("note", 3),
    )
    built, hidden = fitting(console, columns, [_group_cells(group) for group in shown])
    footer = _footer(len(shown), total, "groups", hidden, found)
    return [built, *footer] if shown else footer


def _group_cells(group: Group) -> list[str | Text]:
    best = group.cheapest
    return [
        *group.key,
        f"{group.count:,}",
        words.rate((best.per_gpu or best.offer.price) if best else None),
        words.rate(group.dearest),
        f"{best.offer.instance_type} in {best.offer.location}" if best else "none can be had",
        best.offer.capacity_type.value.replace("_", "-") if best else "",
        _note(best) if best else "",
    ]


def document(
    listed: Sequence[Row], grouped: Sequence[Group], by: Sequence[str], found: Listing, limit: int | None
) -> dict[str, Any]:
    """The document of `gpubroker offers --json`: the rows that match, or the groups."""
    base: dict[str, Any] = {"as_of": found.now, "matching": len(listed), "total": found.total}
    if by:
        return base | {"group_by": list(by), "groups": [_group_json(group, by) for group in grouped[:limit]]}
    return base | {"offers": [as_json(row) for row in listed[:limit]]}


def _group_json(group: Group, by: Sequence[str]) -> dict[str, Any]:
    return dict(zip(by, group.key, strict=True)) | {
        "offers": group.count,
        "max_price_per_gpu_hour": group.dearest,
        "cheapest": as_json(group.cheapest) if group.cheapest else None,
    }
