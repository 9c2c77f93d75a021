"""Lists of the current offers that match: each offer, each with its risk, or the cheapest of each group."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from broker.app.market.experience import risks
from broker.app.market.market import find_offers
from broker.app.market.offer_documents import OfferGroupList, OfferGroupResult, OfferList, OfferRiskList, OfferWithRisk
from broker.app.market.offer_rows import ListedOffer, OfferFilter, count_hidden_old, matching_rows, sort_key
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, UnknownName
from broker.core.market.accelerators import nearest
from broker.core.market.offer_order import OfferOrder
from broker.core.market.offers import Offer
from broker.core.market.price_basis import is_obtainable

_CPU = "cpu"


def nearest_accelerators(
    broker: Broker, wanted_counts: Mapping[str, Iterable[int]], offers: Iterable[Offer]
) -> dict[str, list[str]]:
    """For each wanted accelerator without a recorded price, the nearest accelerators that have one; for each that has
    prices, but none for the wanted numbers (``H100:3``), the numbers that have one. ``offers``: all offers that
    match."""
    counts: dict[str, set[int]] = {}
    for offer in offers:
        counts.setdefault(offer.accelerator or _CPU, set()).add(offer.count)
    with broker.store.reading() as reader:
        priced_names = {name for name in reader.names_in_market("accelerator") if name}
    nearest_by_name = dict[str, list[str]]()
    for name, numbers in wanted_counts.items():
        if name == _CPU or name in priced_names - {*counts}:
            continue  # of it, something is offered elsewhere
        if name not in counts:
            nearest_by_name[name] = nearest(name, priced_names)
        elif numbers and not counts[name] & {*numbers}:
            alternatives = [f"{name}:{number}" for number in sorted(counts[name])]
            nearest_by_name |= {f"{name}:{number}": alternatives for number in sorted(numbers)}
    return {name: alternatives for name, alternatives in nearest_by_name.items() if alternatives}


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
    """All offers that match, at ``as_of`` (UTC). The other fields: see `OfferCounts` of `offer_documents`."""

    rows: Sequence[ListedOffer]
    as_of: datetime
    total: int
    old_hidden: int
    converted: Mapping[str, Sequence[str]]
    nearby: Mapping[str, Sequence[str]]

    @property
    def matching(self) -> int:
        return len(self.rows)


def matching_offers(
    broker: Broker, offer_filter: OfferFilter, order: OfferOrder = OfferOrder.GPU_PRICE
) -> MatchingOffers:
    """The offers that match, in that order. Raises `UnknownName` for an unknown provider or region."""
    offer_listing = find_offers(broker, offer_filter.query)
    rows = matching_rows(offer_listing.offers, offer_listing.now, offer_filter, order)
    hidden_count = count_hidden_old(offer_listing.offers, offer_listing.now, offer_filter)
    nearest_by_name = {} if rows else nearest_accelerators(broker, offer_filter.counts, offer_listing.offers)
    return MatchingOffers(
        rows, offer_listing.now, offer_listing.total, hidden_count, offer_listing.converted, nearest_by_name
    )


def list_offers(broker: Broker, offer_filter: OfferFilter, order: OfferOrder, limit: int | None) -> OfferList:
    """The first ``limit`` offers (None: all) that match. Raises as `matching_offers`."""
    matches = matching_offers(broker, offer_filter, order)
    return OfferList.from_parts(matches, offers=matches.rows[:limit])


def list_offer_risks(broker: Broker, offer_filter: OfferFilter, order: OfferOrder, limit: int | None) -> OfferRiskList:
    """The first ``limit`` offers (None: all) that match, with their risk, by which `OfferOrder.INTERRUPTIONS` sorts
    them. Raises as `matching_offers`."""
    matches, risk_estimates = matching_offers(broker, offer_filter, order), risks(broker, offer_filter.query)
    rows = list(matches.rows)
    if order is OfferOrder.INTERRUPTIONS:
        rows.sort(key=lambda row: risk_estimates(row.offer))
    offers = [OfferWithRisk.of(row, risk=risk_estimates.of(row.offer)) for row in rows[:limit]]
    return OfferRiskList.from_parts(matches, offers=offers)


def list_offer_groups(
    broker: Broker, offer_filter: OfferFilter, by: Sequence[str], limit: int | None
) -> OfferGroupList:
    """The first ``limit`` groups (None: all) of the offers that match. Raises as `matching_offers`."""
    matches = matching_offers(broker, offer_filter)
    all_groups = list(group_offers(matches.rows, by))
    return OfferGroupList.from_parts(
        matches, group_by=list(by), matching_groups=len(all_groups), groups=all_groups[:limit]
    )


def parse_dimensions(text: str, where: str) -> tuple[str, ...]:
    """Parse ``gpu,provider``. Raises `UnknownName`, or `InvalidInput` for an empty list, ``where``."""
    names = tuple(dict.fromkeys(name.strip().replace("-", "_") for name in text.split(",") if name.strip()))
    for name in names:
        if name not in _DIMENSIONS:
            raise UnknownName("dimension", name, _DIMENSIONS)
    if not names:
        raise InvalidInput(f"expected one or more of {', '.join(_DIMENSIONS)}; got none", where=where)
    return names


def group_offers(rows: Sequence[ListedOffer], by: Sequence[str]) -> Iterator[OfferGroupResult]:
    """One group for each combination of values, cheapest first, whatever the order of ``rows``. Sold-out and suspicious
    offers are counted, but are never the cheapest."""
    members: dict[tuple[str, ...], list[ListedOffer]] = {}
    for row in rows:
        members.setdefault(tuple(_DIMENSIONS[name](row.offer) for name in by), []).append(row)
    best = {key: _cheapest(group_rows) for key, group_rows in members.items()}

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
    available = [row for row in rows if row.offer.price is not None and is_obtainable(row.offer)]
    return min(available, key=sort_key(OfferOrder.GPU_PRICE), default=None)
