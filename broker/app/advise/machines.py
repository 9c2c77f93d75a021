"""Offers of the machines that a parallelism needs, and the interconnect of their accelerators."""

from __future__ import annotations

from dataclasses import dataclass

from broker.app.advise.prices import CurrentPrices, Quote
from broker.core.market.offers import CapacityType
from broker.core.values.units import split_machine
from broker.economics.parallelism import ParallelPlan

NVLINK = "nvlink"


@dataclass(frozen=True, slots=True)
class Supply:
    """``offers``: the number of offers with enough accelerators per machine; of these ``linked`` by NVLink,
    ``unlinked``, and ``unknown``. ``price``: the cheapest suitable one; None without any."""

    offers: int
    linked: int
    unlinked: int
    unknown: int
    price: Quote | None
    says: str


def supply(prices: CurrentPrices, plan: ParallelPlan) -> Supply:
    """The offers of the machines that the plan needs."""
    _, per_machine = split_machine(plan.machine)
    rows = prices.machines(plan.accelerator, per_machine)
    linked = sum(row.offers for row in rows if row.interconnect == NVLINK)
    unknown = sum(row.offers for row in rows if row.interconnect is None)
    total = sum(row.offers for row in rows)
    wants = plan.interconnect == NVLINK
    fitting = CurrentPrices(tuple(row for row in rows if row.interconnect == NVLINK or not wants), prices.stated)
    kinds = (CapacityType.ON_DEMAND, CapacityType.SPOT, CapacityType.RESERVED)
    quotes = (fitting.quote(plan.accelerator, per_machine, plan.num_nodes, kind) for kind in kinds)
    price = next((quote for quote in quotes if quote), None)
    return Supply(total, linked, total - linked - unknown, unknown, price, _says(plan, total, linked, unknown, price))


def _says(plan: ParallelPlan, total: int, linked: int, unknown: int, price: Quote | None) -> str:
    if not total:
        return f"no offer of {plan.machine} or larger is known"
    each = "" if price is None else f", from ${price.usd_per_hour:,.2f}/h for {plan.num_nodes} × {price.machine}"
    if plan.interconnect == NVLINK:
        doubt = f" ({unknown} do not say)" if unknown else ""
        return f"{linked} of {total} offers of {plan.machine} or larger have NVLink{doubt}{each}"
    return f"{total} offers of {plan.machine} or larger{each}"
