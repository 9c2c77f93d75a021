"""Lists of the current offers that match: each offer, each with its risk, or the cheapest of each group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from broker.app.market.market import listing
from broker.app.market.offer_rows import ListedOffer, OfferFilter, hidden_old, sort_key, wanted_rows
from broker.app.market.risk import risks
from broker.app.results.offers import OfferGroupList, OfferGroupResult, OfferList, OfferRiskList, OfferWithRisk
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, UnknownName
from broker.core.market.offer_order import OfferOrder
from broker.core.market.offers import Availability, Offer
from broker.core.values.accelerators import nearest

_CPU = "cpu"


def nearby(broker: Broker, wanted: Mapping[str, Iterable[int]], found: Iterable[Offer]) -> dict[str, list[str]]:
    """For each wanted accelerator without a recorded price, the nearest accelerators that have one; for each that has
    prices, but none for the wanted numbers (``H100:3``), the numbers that have one. ``found``: all offers that
    match."""
    counts: dict[str, set[int]] = {}
    for offer in found:
        counts.setdefault(offer.accelerator or _CPU, set()).add(offer.count)
    with broker.store.reading() as look:
        priced = {name for name in look.names_in_market("accelerator") if name}
    near = dict[str, list[str]]()
    for name, numbers in wanted.items():
        if name == _CPU or name in priced - {*counts}:
            continue  # of it, something is offered elsewhere
        if name not in counts:
            near[name] = nearest(name, priced)
        elif numbers and not counts[name] & {*numbers}:
            others = [f"{name}:{number}" for number in sorted(counts[name])]
            near |= {f"{name}:{number}": others for number in sorted(numbers)}
    return {name: others for name, others in near.items() if others}


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
class MatchingOffers:
    """All offers that match, at ``as_of`` (UTC). The other fields: see `broker.app.results.offers.OfferCounts`."""

    rows: Sequence[ListedOffer]
    as_of: datetime
    total: int
    old_hidden: int
    converted: Mapping[str, Sequence[str]]
    nearby: Mapping[str, Sequence[str]]

    @property
    def matching(self) -> int:
        return len(self.rows)


def matching_offers(broker: Broker, wanted: OfferFilter, order: OfferOrder = OfferOrder.GPU_PRICE) -> MatchingOffers:
    """The offers that match, in that order. Raises `UnknownName` for an unknown provider or region."""
    found = listing(broker, wanted.query)
    rows = wanted_rows(found.offers, found.now, wanted, order)
    hidden = hidden_old(found.offers, found.now, wanted)
    near = {} if rows else nearby(broker, wanted.counts, found.offers)
    return MatchingOffers(rows, found.now, found.total, hidden, found.converted, near)


def offer_list(broker: Broker, wanted: OfferFilter, order: OfferOrder, limit: int | None) -> OfferList:
    """The first ``limit`` offers (None: all) that match. Raises as `matching_offers`."""
    found = matching_offers(broker, wanted, order)
    return OfferList.from_parts(found, offers=found.rows[:limit])


def offer_risks(broker: Broker, wanted: OfferFilter, order: OfferOrder, limit: int | None) -> OfferRiskList:
    """The first ``limit`` offers (None: all) that match, with their risk, by which `OfferOrder.INTERRUPTIONS` sorts
    them. Raises as `matching_offers`."""
    found, known = matching_offers(broker, wanted, order), risks(broker, wanted.query)
    rows = list(found.rows)
    if order is OfferOrder.INTERRUPTIONS:
        rows.sort(key=lambda row: known(row.offer))
    offers = [OfferWithRisk.of(row, risk=known.of(row.offer)) for row in rows[:limit]]
    return OfferRiskList.from_parts(found, offers=offers)


def offer_groups(broker: Broker, wanted: OfferFilter, by: Sequence[str], limit: int | None) -> OfferGroupList:
    """The first ``limit`` groups (None: all) of the offers that match. Raises as `matching_offers`."""
    found = matching_offers(broker, wanted)
    grouped = list(groups(found.rows, by))
    return OfferGroupList.from_parts(found, group_by=list(by), matching_groups=len(grouped), groups=grouped[:limit])


def dimensions(text: str, where: str) -> tuple[str, ...]:
    """Parse ``gpu,provider``. Raises `UnknownName`, or `InvalidInput` for an empty list, ``where``."""
    names = tuple(dict.fromkeys(name.strip().replace("-", "_") for name in text.split(",") if name.strip()))
    for name in names:
        if name not in _DIMENSIONS:
            raise UnknownName("dimension", name, _DIMENSIONS)
    if not names:
        raise InvalidInput(f"expected one or more of {', '.join(_DIMENSIONS)}; got none", where=where)
    return names


def groups(rows: Sequence[ListedOffer], by: Sequence[str]) -> Iterator[OfferGroupResult]:
    """One group for each combination of values, cheapest first, whatever the order of ``rows``. Sold-out and doubted
    offers are counted, but are never the cheapest."""
    members: dict[tuple[str, ...], list[ListedOffer]] = {}
    for row in rows:
        members.setdefault(tuple(_DIMENSIONS[name](row.offer) for name in by), []).append(row)
    best = {key: _cheapest(grouped) for key, grouped in members.items()}

    def order(key: tuple[str, ...]) -> tuple[bool, int, tuple[str, ...]]:
        cheapest = best[key]
        price = cheapest and (cheapest.per_gpu or cheapest.offer.price)
        return cheapest is None or not cheapest.offer.count, price.micros if price else 0, key

    for key in sorted(members, key=order):
        prices = [row.per_gpu for row in members[key] if row.per_gpu is not None]
        yield OfferGroupResult(
            **dict(zip(by, key, strict=True)),
            offers=len(members[key]),
            max_price_per_gpu_hour=max(prices, default=None),
            cheapest=best[key],
        )


def _cheapest(rows: Sequence[ListedOffer]) -> ListedOffer | None:
    out = (Availability.UNAVAILABLE, Availability.NO_QUOTA)
    to_be_had = [
        row
        for row in rows
        if row.offer.price is not None and row.offer.availability not in out and row.offer.doubt is None
    ]
    return min(to_be_had, key=sort_key(OfferOrder.GPU_PRICE), default=None)
