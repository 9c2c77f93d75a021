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
class Record:
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


def record(store: Store, offers: Sequence[Offer], end: datetime, reach: timedelta, gap: timedelta) -> Record:
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
    began = ticks
    told = store.market.price_series_of(offers, start, end)
    for offer in offers:
        prices = [(point.at, point.price) for point in told[offer.id]]
        stated = store.market.availability_series(offer, start, end)
        words = [(point.at, point.availability) for point in stated]
        first = next((at for at, known in prices if known is not None), None)
        if first is None:
            continue
        began = min(began, next((i for i, time in enumerate(times) if time >= first), ticks))
        bits: list[bool] = []
        costs: list[float] = []
        last = next(known.micros / 1e6 for _, known in prices if known is not None)
        for cost, word in zip(_in_force(prices, times), _in_force(words, times), strict=True):
            last = cost.micros / 1e6 if cost is not None else last
            bits.append(cost is not None and word not in (Availability.UNAVAILABLE, Availability.NO_QUOTA))
            costs.append(last)
        available[offer.pool], price[offer.pool] = bits, costs
    return Record(
        {pool: bits[began:] for pool, bits in available.items()},
        {pool: costs[began:] for pool, costs in price.items()},
    )


def _in_force(points: Sequence[tuple[datetime, T]], times: Sequence[datetime]) -> Iterator[T | None]:
    """The value in force at each of ``times``, both ascending; None before the first."""
    n, value = 0, None
    for time in times:
        while n < len(points) and points[n][0] <= time:
            value = points[n][1]
            n += 1
        yield value
