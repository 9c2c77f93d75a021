"""Grouped offers: the cheapest GPU-hour by accelerator, provider, region, …"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.market.offer_rows import ListedOffer, sort_key
from broker.app.results.offers import OfferGroupList, OfferGroupResult, OfferResult
from broker.cli.prices.offer_view import footer, note
from broker.cli.render import formats
from broker.cli.render.tables import Column, fitted
from broker.core.errors import InvalidInput, UnknownName
from broker.core.market.offer_order import OfferOrder
from broker.core.market.offers import Availability, Offer
from broker.core.values.money import Money

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.market.market import OfferListing

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
    """Offers with the same values in some dimensions, and the cheapest available one among them."""

    key: tuple[str, ...]
    count: int
    cheapest: ListedOffer | None
    most_expensive: Money | None


def dimensions(text: str) -> tuple[str, ...]:
    """Parse ``gpu,provider``. Raises `UnknownName`, or `InvalidInput` for an empty list."""
    names = tuple(dict.fromkeys(name.strip().replace("-", "_") for name in text.split(",") if name.strip()))
    for name in names:
        if name not in _DIMENSIONS:
            raise UnknownName("dimension", name, _DIMENSIONS)
    if not names:
        raise InvalidInput(f"expected one or more of {', '.join(_DIMENSIONS)}; got none", where="--group-by")
    return names


def groups(listed: Sequence[ListedOffer], by: Sequence[str]) -> list[Group]:
    """One group for each combination of values, cheapest first, whatever the order of ``listed``. Sold-out and doubted
    offers are counted, but are never the cheapest."""
    members: dict[tuple[str, ...], list[ListedOffer]] = {}
    for row in listed:
        members.setdefault(tuple(_DIMENSIONS[name](row.offer) for name in by), []).append(row)
    found = [_group(key, grouped) for key, grouped in members.items()]

    def order(group: Group) -> tuple[bool, int, tuple[str, ...]]:
        price = group.cheapest and (group.cheapest.per_gpu or group.cheapest.offer.price)
        return group.cheapest is None or not group.cheapest.offer.count, price.micros if price else 0, group.key

    return sorted(found, key=order)


def _group(key: tuple[str, ...], grouped: Sequence[ListedOffer]) -> Group:
    out = (Availability.UNAVAILABLE, Availability.NO_QUOTA)
    priced = [row for row in grouped if row.offer.price is not None]
    prices = [row.per_gpu for row in priced if row.per_gpu is not None]
    to_be_had = [row for row in priced if row.offer.availability not in out and row.offer.doubt is None]
    return Group(
        key=key,
        count=len(grouped),
        cheapest=min(to_be_had, key=sort_key(OfferOrder.GPU_PRICE), default=None),
        most_expensive=max(prices, default=None),
    )


def table(
    console: Console, shown: Sequence[Group], by: Sequence[str], total: int, matching: int, found: OfferListing
) -> list[RenderableType]:
    """The table of groups and its footer."""
    columns = (
        *(Column(name.replace("_", " ")) for name in by),
        Column("offers", 6, align="right"),
        Column("min $/GPU-h", align="right"),
        Column("max $/GPU-h", 5, align="right"),
        Column("cheapest", 2),
        Column("purchase type", 1),
        Column("note", 3),
    )
    below = footer(len(shown), total, "groups", found)
    return [*fitted(console, columns, [_group_cells(group) for group in shown]), *below] if shown else below


def _group_cells(group: Group) -> list[str | Text]:
    best = group.cheapest
    return [
        *group.key,
        f"{group.count:,}",
        formats.rate((best.per_gpu or best.offer.price) if best else None),
        formats.rate(group.most_expensive),
        f"{best.offer.instance_type} in {best.offer.location}" if best else "none available",
        formats.purchase_type(best.offer.capacity_type) if best else "",
        note(best) if best else "",
    ]


def result(
    listed: Sequence[ListedOffer], grouped: Sequence[Group], by: Sequence[str], found: OfferListing
) -> OfferGroupList:
    """The groups as a result. ``listed``: every matching row."""
    return OfferGroupList(
        as_of=found.now,
        matching=len(listed),
        total=found.total,
        group_by=list(by),
        groups=[
            OfferGroupResult.model_validate(
                dict(zip(by, group.key, strict=True))
                | {
                    "offers": group.count,
                    "max_price_per_gpu_hour": group.most_expensive,
                    "cheapest": OfferResult.of(group.cheapest) if group.cheapest else None,
                }
            )
            for group in grouped
        ],
    )
