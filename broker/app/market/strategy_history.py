"""The spot pool history per tick, from which strategies learn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from broker.core.market.offers import Availability, Offer

if TYPE_CHECKING:
    from broker.store import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MarketRecord:
    """Availability and price per pool (USD per hour and machine), one entry per tick. All pools begin with the first
    tick at which any pool is known."""

    available: Mapping[str, Sequence[bool]]
    price: Mapping[str, Sequence[float]]

    @property
    def ticks(self) -> int:
        return max((len(bits) for bits in self.available.values()), default=0)

    def at(self, tick: int) -> dict[str, float]:
        """The prices of the pools that had capacity at that tick."""
        return {pool: self.price[pool][tick] for pool, bits in self.available.items() if bits[tick]}


def record_market(
    store: Store, offers: Sequence[Offer], end: datetime, reach: timedelta, gap: timedelta
) -> MarketRecord:
    """The record of the last ``reach`` before ``end`` (UTC) of the pools of these offers, one offer for each pool, with
    a tick every ``gap``; the last tick is a gap before ``end``.

    A pool is available while it has a price and is not reported as sold out or out of quota. Between polls the newest
    report holds. Without a price, a pool is unavailable, at its last known price.
    """
    ticks = reach // gap
    start = end - ticks * gap
    times = [start + i * gap for i in range(ticks)]
    available: dict[str, list[bool]] = {}
    price: dict[str, list[float]] = {}
    first_tick = ticks
    price_series = store.market.price_series_of(offers, start, end)
    for offer in offers:
        prices = [(point.at, point.price) for point in price_series[offer.id]]
        availability_series = store.market.availability_series(offer, start, end)
        availability_points = [(point.at, point.availability) for point in availability_series]
        first_price_at = next((at for at, point_price in prices if point_price is not None), None)
        if first_price_at is None:
            continue
        first_tick = min(first_tick, next((i for i, time in enumerate(times) if time >= first_price_at), ticks))
        bits: list[bool] = []
        costs: list[float] = []
        last_price = next(point_price.micros / 1e6 for _, point_price in prices if point_price is not None)
        for cost, availability_state in zip(
            _values_at(prices, times), _values_at(availability_points, times), strict=True
        ):
            last_price = cost.micros / 1e6 if cost is not None else last_price
            bits.append(
                cost is not None and availability_state not in (Availability.UNAVAILABLE, Availability.NO_QUOTA)
            )
            costs.append(last_price)
        available[offer.pool], price[offer.pool] = bits, costs
    return MarketRecord(
        {pool: bits[first_tick:] for pool, bits in available.items()},
        {pool: costs[first_tick:] for pool, costs in price.items()},
    )


def _values_at(points: Sequence[tuple[datetime, T]], times: Sequence[datetime]) -> Iterator[T | None]:
    """The value in force at each of ``times``, both ascending; None before the first."""
    n, value = 0, None
    for time in times:
        while n < len(points) and points[n][0] <= time:
            value = points[n][1]
            n += 1
        yield value
