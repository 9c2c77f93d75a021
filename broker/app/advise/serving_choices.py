"""Accelerators that serve a model, at current prices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from broker.app.advise.prices import CurrentPrices
from broker.app.advise.subject import Subject
from broker.core.market.offers import CapacityType
from broker.core.values.accelerators import Accelerator, lookup
from broker.economics.assumptions import Assumptions
from broker.economics.serving import Traffic
from broker.economics.serving_options import GpuHourPrices, MachinePrice, ServingOption, options, settled, simulated
from broker.economics.unit_cost import energy_usd_per_hour
from broker.economics.units import HOURS_PER_YEAR


@dataclass(frozen=True, slots=True)
class ServingDemand:
    """What is served. ``batch``: concurrent requests of a replica, None for as many as fit; ``context``: tokens of a
    sequence, for the KV cache."""

    model: Subject
    traffic: Traffic
    context: int
    batch: int | None
    least_replicas: int
    spare_machines: int


def serving_choices(
    demand: ServingDemand, cards: Iterable[Accelerator], prices: CurrentPrices, rules: Assumptions
) -> tuple[tuple[ServingOption, ...], list[str]]:
    """The accelerators that hold the model, the best first, and the assumptions."""
    model, traffic = demand.model, demand.traffic
    priced = {card.name: (card, _prices(card, prices, rules)) for card in cards}
    notes = [*model.notes]
    if demand.batch is None:
        notes.append(f"as many concurrent requests as fit in memory, at most {rules.serving_most_sequences} (--batch)")
    if traffic.prompt_tokens:
        notes.append("prompts are read between the steps of generation, on the same GPUs")
    else:
        notes.append("the work for prompts is not counted (--prompt-tokens)")
    notes += [
        "speeds are estimates within a factor of 1.5 of published ones; measure yours",
        "rented and reserved: whole machines",
        f"owned: the GPU's street price over {rules.years:g} years and its board power at "
        f"${rules.kwh_usd:g}/kWh, PUE {rules.pue:g}; no host, no staff",
    ]
    found = options(
        traffic,
        parameters=model.parameters,
        active=model.active,
        shape=model.shape,
        context=demand.context,
        batch=demand.batch,
        accelerators=tuple(priced.values()),
        least_replicas=demand.least_replicas,
        spare_machines=demand.spare_machines,
        rules=rules,
    )
    notes += dict.fromkeys(one.pace_text for one in found if one.pace_text)
    if not found or not traffic.prompt_tokens:
        return found, notes

    def simulate(option: ServingOption) -> ServingOption:
        return simulated(
            option,
            traffic,
            lookup(option.accelerator),
            priced[option.accelerator][1],
            parameters=model.parameters,
            shape=model.shape,
            active=model.active,
            context=demand.context,
            spare_machines=demand.spare_machines,
            rules=rules,
        )

    ranked = settled(found, simulate)
    best = ranked[0]
    before = next(one for one in found if (one.accelerator, one.precision) == (best.accelerator, best.precision))
    if best.replicas > before.replicas:
        notes.append(f"{best.replicas} replicas instead of {before.replicas}, to keep the p95 with random arrivals")
    return ranked, notes


def _prices(card: Accelerator, prices: CurrentPrices, rules: Assumptions) -> GpuHourPrices:
    rented, reserved = CapacityType.ON_DEMAND, CapacityType.RESERVED
    low, high = card.street_price or (None, None)
    power = energy_usd_per_hour(card.tdp_w or 0.0, rules.kwh_usd, rules.pue)
    owned = (low + high) / 2 / (rules.years * HOURS_PER_YEAR) + power if low and high else None
    per_gpu = {}
    for kind in (reserved, rented):
        quote = prices.gpu_hour(card.name, kind)
        per_gpu[kind] = quote.usd_per_gpu_hour if quote else None
    machines = (_machines(prices, card.name, kind) for kind in (rented, reserved))
    return GpuHourPrices(owned, per_gpu[reserved], per_gpu[rented], *machines)


def _machines(prices: CurrentPrices, accelerator: str, kind: CapacityType) -> tuple[MachinePrice, ...]:
    """The cheapest machine of each size."""
    if accelerator in prices.stated:
        return tuple(MachinePrice(size, prices.stated[accelerator] * size) for size in (1, 2, 4, 8))
    sizes = sorted({row.count for row in prices.machines(accelerator) if row.capacity_type == kind})
    quotes = [(size, prices.quote(accelerator, size, 1, kind)) for size in sizes]
    return tuple(MachinePrice(size, quote.usd_per_hour) for size, quote in quotes if quote is not None)
