"""Market prices for the comparison with quoted rules of thumb."""

from __future__ import annotations

from broker.app.advise.prices import CurrentPrices
from broker.core.market.offers import CapacityType
from broker.economics.quoted import MarketFigures


def market_figures(prices: CurrentPrices) -> MarketFigures:
    """The cheapest on-demand GPU-hour of each accelerator, and the prices of spot and reserved machines divided by the
    on-demand price of the same machine at the same place."""
    on_demand = {}
    for name in prices.accelerators():
        quote = prices.gpu_hour(name)
        if quote is not None:
            on_demand[name] = quote.usd_per_gpu_hour
    places: dict[tuple[object, ...], dict[str, int]] = {}
    for row in prices.rows:
        place = (row.provider, row.region, row.instance_type, row.accelerator, row.count)
        cheapest = places.setdefault(place, {})
        cheapest[row.capacity_type] = min(row.micros, cheapest.get(row.capacity_type, row.micros))

    def ratios(kind: CapacityType) -> tuple[float, ...]:
        usual = CapacityType.ON_DEMAND.value
        return tuple(one[kind.value] / one[usual] for one in places.values() if kind.value in one and usual in one)

    return MarketFigures(on_demand, ratios(CapacityType.SPOT), ratios(CapacityType.RESERVED))
