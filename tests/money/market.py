"""The market of the money tests: the true prices of capacity, and the prices that the broker has been told, with their
times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from broker.core.market.offers import Availability, Billing, CapacityType, Interconnect, MoneyKind, Offer
from broker.core.values.money import Money
from tests.money.cloud import ENGINE

if TYPE_CHECKING:
    from broker.store import Store

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class MarketPool:
    """One kind of capacity in one place. ``price``: the initial price, USD per hour and machine."""

    provider: str
    region: str
    gpus: int
    capacity: CapacityType
    price: str
    billing: Billing = field(default_factory=Billing)
    money: MoneyKind = MoneyKind.CASH


_SECONDS = Billing(minimum=MINUTE)
_HOURS = Billing(granularity=HOUR)
_FREE_HOUR = Billing(minimum=MINUTE, free_if_interrupted_within=HOUR)
POOLS: Mapping[str, MarketPool] = {
    "aws": MarketPool("aws", "us-east-1", 1, CapacityType.ON_DEMAND, "4", _SECONDS),
    "aws-spot": MarketPool("aws", "us-east-1", 1, CapacityType.SPOT, "1", _FREE_HOUR),
    "aws-8": MarketPool("aws", "us-east-1", 8, CapacityType.ON_DEMAND, "32", _SECONDS),
    "gcp": MarketPool("gcp", "europe-west4", 1, CapacityType.ON_DEMAND, "5", _SECONDS),
    "gcp-spot": MarketPool("gcp", "europe-west4", 1, CapacityType.SPOT, "1.5", _SECONDS),
    "gcp-8-spot": MarketPool("gcp", "europe-west4", 8, CapacityType.SPOT, "12", _SECONDS),
    "vast": MarketPool("vast", "us-tx", 1, CapacityType.ON_DEMAND, "3", _HOURS),
    "owned": MarketPool("owned", "lab", 1, CapacityType.RESERVED, "0", money=MoneyKind.AMORTISED),
}
BOUGHT = {"owned": 1}  # with the number of machines; not available at the beginning


@dataclass
class PriceLine:
    """One pool's prices: the true ones, each with the time (UTC) from which on it was in force, and when the broker was
    told of each. ``since``: the last change of price or availability.
    """

    true: list[tuple[datetime, Money]]
    told: list[datetime]
    since: datetime
    available: bool = True

    def at(self, moment: datetime) -> Money:
        """The price in force at that time; before the first price, the first."""
        return self.true[max(bisect_right(self.true, moment, key=lambda pair: pair[0]) - 1, 0)][1]

    def known(self, moment: datetime) -> Money:
        """The newest price that the broker had been told by that time."""
        return self.true[max(bisect_right(self.told, moment) - 1, 0)][1]


class StageMarket:
    """Prices change when the script says so; the broker learns of it at the script's next poll."""

    def __init__(self, begins: datetime) -> None:
        self.begins = begins
        self.lines = {
            name: PriceLine([(begins, Money.usd(pool.price))], [begins], begins, name not in BOUGHT)
            for name, pool in POOLS.items()
        }
        self._names = {
            _offer(name, pool, Money.usd("1"), begins, available=True).pool: name for name, pool in POOLS.items()
        }

    def line_of(self, offer: Offer) -> PriceLine:
        """The prices of an offer's pool."""
        return self.lines[self._names[offer.pool]]

    def moves(self, name: str, price: Money, at: datetime) -> None:
        """Change the price from that time on, without telling the broker."""
        line = self.lines[name]
        line.true.append((at, price))
        line.since = at

    def opens(self, name: str, at: datetime, *, available: bool) -> None:
        """Change the availability from that time on, without telling the broker."""
        line = self.lines[name]
        line.available, line.since = available, at

    def tell(self, store: Store, true: datetime, shown: datetime) -> None:
        """Poll: store everything that is true now, each price with the time from which on it was in force, in their
        order. ``shown``: the present time of the broker's clock.
        """
        untold = sorted({at for line in self.lines.values() for at, _ in line.true[len(line.told) :]})
        for moment in [at for at in untold if at < true] + [true]:
            offers = []
            for name, pool in POOLS.items():
                line = self.lines[name]
                since = line.since if moment == true else line.true[bisect_right(line.true, moment, key=_when) - 1][0]
                offers.append(_offer(name, pool, line.at(moment), min(since, shown), available=line.available))
            store.record_poll("stage", started=shown, finished=shown, offers=offers)
        for line in self.lines.values():
            line.told += [true] * (len(line.true) - len(line.told))


def _when(pair: tuple[datetime, Money]) -> datetime:
    return pair[0]


def _offer(name: str, pool: MarketPool, price: Money, as_of: datetime, *, available: bool) -> Offer:
    bought = name in BOUGHT
    return Offer(
        provider=pool.provider,
        region=pool.region,
        zone=None,
        instance_type=f"box{pool.gpus}",
        accelerator="H100",
        count=pool.gpus,
        capacity_type=pool.capacity,
        price=price,
        as_of=as_of,
        source="stage",
        amortised=Money.usd("2") if bought else None,
        cpus=16,
        memory_gib=128,
        interconnect=Interconnect.NVLINK,
        availability=Availability.AVAILABLE if available else Availability.UNAVAILABLE,
        interruption_rate=0.02 if pool.capacity is CapacityType.SPOT else 0.0,
        slots=BOUGHT.get(name),
        engine=ENGINE,
        money=pool.money,
        billing=pool.billing,
    )
