"""Recorded prices: the series of a period."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from broker.app.market.offer_rows import OfferFilter, check_names
from broker.core.errors import InvalidInput
from broker.core.market.offers import SANDBOX, Availability, Offer, OfferQuery
from broker.core.values.money import Money, divide_half_even, in_microseconds

if TYPE_CHECKING:
    from broker.app.wiring import Broker
    from broker.store.records import AvailabilityPoint, PricePoint, Series, SignalPoint


@dataclass(frozen=True, slots=True)
class PricePeriod:
    """A price (USD per hour and machine), or none, from ``start`` to ``end`` (UTC)."""

    start: datetime
    end: datetime
    price: Money | None


def price_periods(
    points: Iterable[tuple[datetime, Money | None]], start: datetime, known_until: datetime
) -> list[PricePeriod]:
    """The time from ``start`` to ``known_until`` divided at each price, without the time before the first one. A price
    at ``known_until`` is a stretch of no length. ``points``: the times from which prices were in force, in order."""
    known_points = [
        (at, price) for at, price in points if at < known_until or (at == known_until and price is not None)
    ]
    period_ends = [*(at for at, _ in known_points), known_until][1:]
    return [
        PricePeriod(max(at, start), end, price)
        for (at, price), end in zip(known_points, period_ends, strict=True)
        if end > start
    ]


@dataclass(frozen=True, slots=True)
class PriceHistory:
    """The record of one pool from one source, from ``start`` to ``end`` (UTC).

    ``offer``: the newest state. ``known_until``: until when the last price is known to hold: the end of the period, or
    the last poll that reported the offer. ``ended``: since when the source no longer reports it.
    """

    offer: Offer
    start: datetime
    end: datetime
    known_until: datetime
    ended: datetime | None
    prices: tuple[PricePoint, ...]
    availability: tuple[AvailabilityPoint, ...]
    signals: tuple[SignalPoint, ...]

    @property
    def stretches(self) -> list[PricePeriod]:
        """The period divided at each price change, without the time before the first price and after ``known_until``. A
        price that only the last poll reported is a stretch of no length."""
        return price_periods(((point.at, point.price) for point in self.prices), self.start, self.known_until)

    @property
    def known(self) -> list[Money]:
        """The prices of the period in chronological order, without gaps."""
        return [stretch.price for stretch in self.stretches if stretch.price is not None]

    @property
    def changes(self) -> int:
        """The number of price changes within the period; starts and ends of the offer are not counted."""
        prices = self.known
        return sum(1 for previous, current in pairwise(prices) if previous != current)

    @property
    def mean(self) -> Money | None:
        """The time-weighted mean price (USD per hour and machine) while there was one, None without one; a price that
        only the last poll reported is returned as it is."""
        weighted = [(s.price.micros, in_microseconds(s.end - s.start)) for s in self.stretches if s.price is not None]
        total = sum(length for _, length in weighted)
        if not total:
            return Money(weighted[-1][0]) if weighted else None
        return Money(divide_half_even(sum(price * length for price, length in weighted), total))

    @property
    def available_part(self) -> float | None:
        """The share of the time with a reported availability in which the pool was available; None if the source never
        reported it."""
        available_seconds = reported_seconds = 0.0
        points = [point for point in self.availability if point.at < self.known_until]
        ends = [*(point.at for point in points), self.known_until][1:]
        for point, end in zip(points, ends, strict=True):
            if point.availability in (None, Availability.UNKNOWN) or end <= self.start:
                continue
            seconds = (end - max(point.at, self.start)).total_seconds()
            reported_seconds += seconds
            available_seconds += seconds if point.availability is Availability.AVAILABLE else 0
        return available_seconds / reported_seconds if reported_seconds else None


@dataclass(frozen=True, slots=True)
class PriceHistories:
    """Price histories of a period, cheapest first by their newest price of a GPU-hour, ended ones last.

    ``matching``: the number of series that match; ``unpriced``: the number of selected ones without a price in the
    period; ``began``: the end of the store's first poll (UTC), only if no history was found.
    """

    histories: tuple[PriceHistory, ...]
    matching: int
    unpriced: int
    start: datetime
    end: datetime
    now: datetime
    began: datetime | None


def price_histories(
    broker: Broker, offer_filter: OfferFilter, start: datetime, end: datetime, *, limit: int | None = None
) -> PriceHistories:
    """The price histories from ``start`` to ``end`` (UTC) of the machines that are wanted, of at most ``limit`` series,
    the cheapest first.

    Simulated ones only if the query names their provider; reference prices only if no live source prices the same
    machine. Raises `InvalidInput` for an empty or future period, `UnknownName` for an unknown provider or
    region.
    """
    now = broker.clock.now()
    if start >= now:
        raise InvalidInput("the period is in the future", where="--from")
    if start >= end:
        raise InvalidInput("the period ends before it begins", where="--from, --to")
    end = min(end, now)
    market = broker.store.market
    query = replace(offer_filter.query, capacity_types=tuple(offer_filter.capacity_types))
    all_series = market.series(query)
    check_names(broker, query, (series.offer for series in all_series))
    matching = [
        series
        for series in _without_replaced(_without_sandbox(all_series, query))
        if offer_filter.fits(series.offer) and (series.ended is None or series.ended > start)
    ]
    matching.sort(key=lambda series: (series.ended is not None, _price_order(series.offer)))
    selected = matching[:limit]
    prices = market.price_series_of([series.offer for series in selected], start, end)
    histories = [
        PriceHistory(
            offer=series.offer,
            start=start,
            end=end,
            known_until=_last_known_time(series, end),
            ended=series.ended,
            prices=tuple(prices[series.offer.id]),
            availability=tuple(market.availability_series(series.offer, start, end)),
            signals=tuple(market.signal_series(series.offer, start, end)),
        )
        for series in selected
        if any(point.price is not None for point in prices[series.offer.id])
    ]
    unpriced = len(selected) - len(histories)
    return PriceHistories(
        tuple(histories), len(matching), unpriced, start, end, now, None if histories else _first_poll_end(broker)
    )


def _without_sandbox(all_series: Iterable[Series], query: OfferQuery) -> list[Series]:
    is_simulated = SANDBOX in query.providers
    return [series for series in all_series if is_simulated or series.offer.provider != SANDBOX]


def _without_replaced(all_series: Sequence[Series]) -> list[Series]:
    """The series without reference prices of machines that a live source prices as well, as in current offers."""

    def machine_key(offer: Offer) -> tuple[object, ...]:
        return offer.location, offer.instance_type, offer.machine, offer.capacity_type, offer.term_months

    live_machines = {machine_key(series.offer) for series in all_series if not series.offer.reference}
    return [
        series for series in all_series if not series.offer.reference or machine_key(series.offer) not in live_machines
    ]


def _price_order(offer: Offer) -> tuple[bool, bool, int, str]:
    price = offer.price_per_gpu or offer.price
    return price is None, not offer.count, price.micros if price is not None else 0, offer.id


def _last_known_time(series: Series, end: datetime) -> datetime:
    if series.ended is not None:
        return min(series.ended, end)
    return end if series.offer.reference else min(series.offer.as_of, end)


def _first_poll_end(broker: Broker) -> datetime | None:
    return min((run.finished for run in broker.store.market.poll_runs()), default=None)
