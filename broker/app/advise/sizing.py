"""Accelerators that hold a model, with their prices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from broker.app.advise.prices import CurrentPrices, Quote
from broker.core.market.offers import CapacityType
from broker.core.values.accelerators import Accelerator
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.fits import Fit, fits
from broker.economics.memory import MemoryEstimate

ON_DEMAND, SPOT = CapacityType.ON_DEMAND, CapacityType.SPOT


@dataclass(frozen=True, slots=True)
class PricedFit:
    """A fit with its current prices; None if unknown."""

    fit: Fit
    on_demand: Quote | None
    spot: Quote | None

    @property
    def cheapest(self) -> Quote | None:
        """The cheaper of the two quotes."""
        return min((q for q in (self.on_demand, self.spot) if q), key=lambda q: q.usd_per_hour, default=None)


def priced_fits(
    needs: MemoryEstimate,
    accelerators: Iterable[Accelerator],
    prices: CurrentPrices,
    *,
    fixed: bool = False,
    rules: Assumptions = DEFAULTS,
) -> tuple[PricedFit, ...]:
    """The accelerators that hold the workload, cheapest first, those without a price last."""
    found = []
    for fit in fits(needs, accelerators, fixed=fixed, rules=rules):
        per_machine = min(fit.count, rules.gpus_per_node)
        machines = -(-fit.count // per_machine)
        quotes = (prices.quote(fit.accelerator, per_machine, machines, kind) for kind in (ON_DEMAND, SPOT))
        found.append(PricedFit(fit, *quotes))
    return tuple(sorted(found, key=_by_price))


def _by_price(row: PricedFit) -> tuple[bool, float, int]:
    best = row.cheapest
    return best is None, best.usd_per_hour if best else 0.0, row.fit.count
