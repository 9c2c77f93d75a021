"""A parallelism, offers of the machines that it needs, and the interconnect of their accelerators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from broker.app.advise.prices import CurrentPrices, Quote
from broker.app.results.training_advice import ParallelismAdvice
from broker.core.market.offers import CapacityType
from broker.core.values.accelerators import Accelerator
from broker.core.values.units import split_machine
from broker.economics.assumptions import Assumptions
from broker.economics.memory import MemoryEstimate
from broker.economics.parallelism import ParallelPlan, choose

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


def parallelism_advice(
    needs: MemoryEstimate,
    card: Accelerator,
    prices: CurrentPrices,
    rules: Assumptions,
    *,
    gpus: int | None,
    linked: bool | None,
    notes: Sequence[str],
) -> ParallelismAdvice:
    """How the workload is distributed, and which offers allow it. ``gpus``: None for the fewest that hold it;
    ``linked``: whether they are linked by NVLink, None for as in the offers; ``notes``: on the model. Raises
    `InvalidInput` if it cannot be distributed so."""
    chosen = choose(needs, card, linked=linked, gpus=gpus, rules=rules)
    found = supply(prices, chosen)
    if linked is None and found.linked == 0 and found.offers:
        # The GPU supports NVLink, but no offered machine has it.
        chosen = choose(needs, card, linked=False, gpus=gpus, rules=rules)
        found = supply(prices, chosen)
    return ParallelismAdvice.from_parts(
        chosen,
        needs_gib=needs.total_gib,
        supply=found,
        constraint=constraint(chosen),
        assumptions=[*notes, *needs.assumptions],
    )


def constraint(plan: ParallelPlan) -> dict[str, Any]:
    """The part of a job file that requests such machines."""
    job: dict[str, Any] = {"resources": {"accelerators": plan.machine}}
    if plan.num_nodes > 1:
        job["num_nodes"] = plan.num_nodes
    if plan.interconnect == NVLINK:
        job["constraints"] = {"interconnect": NVLINK}
    return job


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
