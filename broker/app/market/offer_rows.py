"""Offers with derived figures, filtered and sorted, for lists."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Literal, Self, get_args

from broker.app.market.recorded_capacity import is_recorded
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, UnknownName, did_you_mean
from broker.core.job.file.accelerator_requests import parse_alternatives
from broker.core.job.jobs import Job
from broker.core.market.accelerators import canonical
from broker.core.market.offer_order import OfferOrder
from broker.core.market.offers import Availability, CapacityType, Offer, OfferQuery
from broker.core.market.price_basis import Standing, is_old, is_stale, machine_order, standing
from broker.core.values.money import Money
from broker.core.values.provider_names import provider_name
from broker.core.values.units import split_machine


def counts_by_accelerator(texts: Iterable[str], where: str) -> dict[str, set[int]]:
    """The requested counts by canonical accelerator name; an empty set means any count. A share of a card
    (``L4:0.25``) means every part that is large enough. ``where``: the option or
    parameter, for errors. Raises `InvalidInput`, `UnknownName`."""
    counts_by_name: dict[str, set[int]] = {}
    for text in texts:
        if text.lower() == "cpu":
            counts_by_name.setdefault("cpu", set())
            continue
        try:
            requests = parse_alternatives(text).requests
            if any(request.at_least for request in requests):
                split_machine(text)  # raises: a list is of exact counts
        except ValueError as error:
            with suppress(ValueError):
                canonical(split_machine(text)[0])
            raise InvalidInput(str(error), where=where) from error
        for request in requests:
            counts = counts_by_name.setdefault(request.name, set())
            if ":" in text:
                counts.add(request.count)
    return counts_by_name


PriceKind = Literal["suspicious", "reference", "stale", "simulated", "imported", "recorded", "live"]
PRICE_KINDS: tuple[PriceKind, ...] = get_args(PriceKind)


@dataclass(frozen=True, slots=True)
class ListedOffer:
    """An offer with derived figures. ``standing``: how it competes with others. ``discount``: of a spot price relative
    to the cheapest on-demand price of the same machine in the same region, as a fraction."""

    offer: Offer
    age: timedelta
    stale: bool
    standing: Standing
    discount: float | None

    @property
    def per_gpu(self) -> Money | None:
        return self.offer.price_per_gpu

    @property
    def price_kind(self) -> PriceKind:
        """``live``, or the first reason that applies why it is not."""
        offer = self.offer
        kinds: dict[PriceKind, bool] = {
            "suspicious": offer.doubt is not None,
            "reference": offer.reference,
            "stale": self.stale,
            "simulated": offer.money == "sandbox",
            "imported": offer.is_imported,
            "recorded": is_recorded(offer),
        }
        return next((kind for kind, holds in kinds.items() if holds), "live")


@dataclass(frozen=True, slots=True)
class OfferFilter:
    """Which offers are wanted. Only accelerators, providers and regions are filtered in the store: the discount of a
    spot offer is computed from on-demand offers that the list may leave out.

    ``counts``: accelerators per machine, by accelerator (``cpu`` for none); without a count, any will do.
    ``providers``, ``regions``, ``instance_types``: names or shell-style patterns. ``price_kinds``: of `PRICE_KINDS`.
    ``old``: also reference prices that are old (`is_old`). ``max_price``: USD per GPU-hour.
    """

    counts: Mapping[str, Set[int]] = field(default_factory=dict)
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    capacity_types: frozenset[CapacityType] = frozenset()
    instance_types: tuple[str, ...] = ()
    available: bool = False
    price_kinds: frozenset[str] = frozenset()
    old: bool = False
    max_price: Money | None = None

    @classmethod
    def of(cls, values: Mapping[str, Sequence[str] | None], *, gpus_from: str = "gpu", **options: Any) -> Self:
        """From the values of ``gpu``, ``provider``, ``region``, ``instance_type``, ``capacity_type`` and
        ``price_kind``. ``gpus_from``: the option or parameter, for errors. Raises `InvalidInput` for a count,
        `UnknownName`."""
        filter_values = {name: tuple(texts or ()) for name, texts in values.items()}
        types = expand_patterns(
            "capacity type",
            filter_values.get("capacity_type", ()),
            [capacity_type.value for capacity_type in CapacityType],
        )
        return cls(
            counts=counts_by_accelerator(filter_values.get("gpu", ()), where=gpus_from),
            providers=tuple(map(provider_name, filter_values.get("provider", ()))),
            regions=filter_values.get("region", ()),
            instance_types=filter_values.get("instance_type", ()),
            capacity_types=frozenset(map(CapacityType, types)),
            price_kinds=expand_patterns("kind of price", filter_values.get("price_kind", ()), PRICE_KINDS),
            **options,
        )

    @property
    def query(self) -> OfferQuery:
        """The part that is filtered in the store."""
        return OfferQuery(accelerators=tuple(sorted(self.counts)), providers=self.providers, regions=self.regions)

    def fits(self, offer: Offer) -> bool:
        """Whether the machine and its capacity type are wanted, whatever the price and its age."""
        counts = self.counts.get(offer.accelerator or "cpu")
        return (
            (not counts or offer.count in counts)
            and (not self.capacity_types or offer.capacity_type in self.capacity_types)
            and (
                not self.instance_types
                or any(fnmatchcase(offer.instance_type, pattern) for pattern in self.instance_types)
            )
        )

    def passes(self, row: ListedOffer) -> bool:
        """Whether the row is wanted."""
        offer = row.offer
        return (
            self.fits(offer)
            and not (self.available and offer.availability is not Availability.AVAILABLE)
            and (not self.price_kinds or row.price_kind in self.price_kinds)
            and (self.old or not _is_old(row))
            and (self.max_price is None or (row.per_gpu is not None and row.per_gpu <= self.max_price))
        )


def _is_old(row: ListedOffer) -> bool:
    return is_old(row.offer, row.offer.as_of + row.age)


def count_hidden_old(offers: Iterable[Offer], now: datetime, offer_filter: OfferFilter) -> int:
    """The number of rows that `matching_rows` leaves out only because of their age."""
    if offer_filter.old:
        return 0
    without_age_limit = replace(offer_filter, old=True)
    reference_rows = (_row(offer, {}, now) for offer in offers if offer.reference)
    return sum(_is_old(row) and without_age_limit.passes(row) for row in reference_rows)


def matching_rows(
    offers: Iterable[Offer], now: datetime, offer_filter: OfferFilter, order: OfferOrder = OfferOrder.GPU_PRICE
) -> list[ListedOffer]:
    """The wanted rows in that order. ``offers``: all that a query found, for the discounts."""
    return sorted(filter(offer_filter.passes, rows(offers, now)), key=sort_key(order))


def rows(offers: Iterable[Offer], now: datetime) -> list[ListedOffer]:
    """Every offer as a row. Spot discounts are computed from these offers only, without suspicious prices."""
    all_offers = list(offers)
    on_demand_prices: dict[tuple[object, ...], Money] = {}
    for offer in all_offers:
        is_trusted = offer.price is not None and offer.price.micros > 0 and offer.doubt is None
        if offer.capacity_type is CapacityType.ON_DEMAND and offer.price is not None and is_trusted:
            key = _machine_key(offer)
            on_demand_prices[key] = min(on_demand_prices.get(key, offer.price), offer.price)
    return [_row(offer, on_demand_prices, now) for offer in all_offers]


def _machine_key(offer: Offer) -> tuple[object, ...]:
    return offer.provider, offer.region, offer.instance_type, offer.accelerator, offer.count


def _row(offer: Offer, on_demand_prices: Mapping[tuple[object, ...], Money], now: datetime) -> ListedOffer:
    discount = None
    if offer.capacity_type is CapacityType.SPOT and offer.price is not None and offer.doubt is None:
        base_price = on_demand_prices.get(_machine_key(offer))
        discount = None if base_price is None else 1 - offer.price.micros / base_price.micros
    return ListedOffer(offer, now - offer.as_of, is_stale(offer, now), standing(offer, now), discount)


def sort_key(order: OfferOrder) -> Callable[[ListedOffer], Any]:
    """The sort key. Rows without the figure come last; ties are broken by the price of a GPU-hour, then by name. Called
    for every known offer, so it formats no text."""

    def price(row: ListedOffer) -> tuple[Any, ...]:
        offer = row.offer
        amount = row.per_gpu or offer.price
        # A suspicious price must not be first in the list.
        return offer.doubt is not None, amount is None, amount.micros if amount else 0, *machine_order(offer)

    def rank(row: ListedOffer) -> tuple[int, bool]:
        return row.standing, row.offer.engine is None

    leading_keys: dict[OfferOrder, Callable[[ListedOffer], Any]] = {
        # Capacity bought for years is cheapest per hour, but is not available by the hour.
        OfferOrder.GPU_PRICE: lambda row: (*rank(row), row.offer.count == 0, row.offer.term_months is not None),
        OfferOrder.PRICE: lambda row: (
            *rank(row),
            row.offer.doubt is not None,
            row.offer.price is None,
            row.offer.price.micros if row.offer.price else 0,
        ),
        OfferOrder.PROVIDER: lambda row: (row.offer.provider, row.offer.region),
        OfferOrder.GPU: lambda row: (row.offer.accelerator or "~", row.offer.count),
        OfferOrder.AGE: lambda row: row.age,
        OfferOrder.INTERRUPTIONS: lambda row: (row.offer.interruption_rate is None, row.offer.interruption_rate or 0),
    }
    return lambda row: (leading_keys[order](row), *price(row))


def expand_patterns(kind: str, patterns: Iterable[str], known_names: Iterable[str]) -> frozenset[str]:
    """The known names that match one of the patterns; ``on-demand`` is ``on_demand``. ``kind``: what they name. Raises
    `UnknownName` for a pattern that matches none."""
    names = list(known_names)
    selected: set[str] = set()
    for pattern in patterns:
        normalized = pattern.strip().lower().replace("-", "_")
        matches = {name for name in names if fnmatchcase(name, normalized)}
        if not matches:
            raise UnknownName(kind, pattern, names)
        selected |= matches
    return frozenset(selected)


def check_names(broker: Broker, query: OfferQuery, current_offers: Iterable[Offer]) -> None:
    """Raises `UnknownName` for a provider or region of the query, or a pattern of such names, that matches neither the
    offers ``current_offers`` nor any offer ever stored."""
    offers = list(current_offers)
    providers = _names_without_match(
        query.providers, {*broker.registries.providers, *(offer.provider for offer in offers)}
    )
    regions = _names_without_match(query.regions, {offer.region for offer in offers})
    if not (providers or regions):
        return
    stored_offers = [series.offer for series in broker.store.market.series()]
    known_names = {
        "provider": {*broker.registries.providers, *(offer.provider for offer in stored_offers)},
        "region": {offer.region for offer in stored_offers},
    }
    for kind, names in (("provider", providers), ("region", regions)):
        for name in _names_without_match(names, known_names[kind]):
            raise UnknownName(kind, name, known_names[kind])


def unknown_providers(broker: Broker, job: Job) -> Iterator[str]:
    """One warning for each provider that the job names and that is neither registered nor in a stored offer."""
    provider_names = [
        *((request.infra or "*").partition("/")[0] for request in job.resources),
        *job.constraints.providers,
    ]
    literal_names = [name for name in dict.fromkeys(provider_names) if not set("*?[") & set(name)]
    if all(name in broker.registries.providers for name in literal_names):
        return
    known_providers = {
        *broker.registries.providers,
        *(series.offer.provider for series in broker.store.market.series()),
    }
    for name in literal_names:
        if name not in known_providers:
            suggestion = (
                did_you_mean(name, known_providers) or "; `gpubroker offers --by provider` lists those that are known"
            )
            yield f"warning: no provider {name!r} is known here{suggestion}"


def _names_without_match(names: Iterable[str], known_names: Iterable[str]) -> list[str]:
    known_names = set(known_names)
    return [name for name in names if not any(fnmatchcase(known_name, name) for known_name in known_names)]
