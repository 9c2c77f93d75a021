"""Replicas and GPUs for a traffic, from a measured speed or for each accelerator that holds the model; scale to zero;
the smallest sufficient model for each kind of task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from broker.app.advise.prices import CurrentPrices
from broker.app.advise.size import named_or_all
from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType
from broker.core.values.accelerators import Accelerator
from broker.core.values.figures import plural
from broker.economics.assumptions import Assumptions, named_numbers
from broker.economics.energy import energy_usd_per_hour
from broker.economics.figures import EstimatedUsd
from broker.economics.memory import Subject
from broker.economics.serving import Routing, ScaleToZero, ServingPlan, TaskClass, Tier, plan, route, scale_to_zero
from broker.economics.serving_options import GpuHourPrices, MachinePrice, ServingOption, options, settled, simulated
from broker.economics.units import HOURS_PER_MONTH, HOURS_PER_YEAR


@dataclass(frozen=True, slots=True)
class ServeAdvice:
    """Replicas and GPUs. ``options``: the accelerators that hold the model, the best first; none with a measured
    speed."""

    plan: ServingPlan
    monthly_usd: EstimatedUsd | None
    options: tuple[ServingOption, ...]
    scale_to_zero: ScaleToZero | None
    routing: Routing | None
    assumptions: tuple[str, ...]

    @property
    def title(self) -> str:
        found, best = self.plan, self.options[0] if self.options else None
        on = f" {best.accelerator} with {best.precision} weights" if best else ""
        slow = "; TOO SLOW with any number of replicas" if found.meets_latency is False else ""
        return f"{plural(found.replicas, 'replica')} on {plural(found.gpus, 'GPU')}{on}{slow}"


def serve(
    model: Subject | None,
    accelerators: Sequence[str],
    tiers: Sequence[str],
    tasks: Sequence[str],
    prices: CurrentPrices,
    assumptions: Assumptions,
) -> ServeAdvice:
    """The advice. ``tiers`` (``NAME:QUALITY:SECONDS:USD``) and ``tasks`` (``NAME:COUNT:QUALITY[:SECONDS]``) of a
    routing among models. Raises InvalidInput."""
    if assumptions.requests_per_minute is None:
        raise InvalidInput("the traffic is missing", hint="give --requests-per-minute")
    routing = route_tasks(tiers, tasks)
    measured, rent = assumptions.replica_tokens_per_second, assumptions.rent_usd_per_hour
    notes = [f"{assumptions.serving_headroom:.0%} headroom"]
    found: tuple[ServingOption, ...] = ()
    if model is not None:
        found, more = serving_options(model, named_or_all(accelerators), prices, assumptions)
        notes += more
    if measured is not None:
        notes.append(f"{measured:g} tokens/s per replica, as given")
        sized = plan(
            assumptions,
            tokens_per_second_per_replica=measured,
            gpus_per_replica=assumptions.gpus_per_replica,
            batch=assumptions.batch,
        )
    elif found:
        best = found[0]
        sized = plan(
            replace(assumptions, least_replicas=best.replicas),  # simulated latencies may take more than the formula
            tokens_per_second_per_replica=best.tokens_per_second_per_replica,
            gpus_per_replica=best.gpus_per_replica,
            batch=best.batch,
        )
        if rent is None and best.monthly_usd_on_demand:
            rent = best.monthly_usd_on_demand / HOURS_PER_MONTH / best.replicas
    elif model is None:
        raise InvalidInput(
            "the speed of a replica is missing", hint="name the model, or give --assume replica_tokens_per_second=N"
        )
    else:
        raise InvalidInput("no accelerator holds the model", hint="reduce the context or the batch")
    if sized.p95_s is None and assumptions.p95_s is not None:
        notes.append("the latency is not checked: give --assume batch=N, the requests at once of a replica")
    sleep = None
    if assumptions.idle_share is not None:
        if rent is None:
            raise InvalidInput("the cost of a replica is missing", hint="give --assume rent_usd_per_hour=USD")
        sleep = scale_to_zero(rent, sized.replicas, assumptions)
    monthly = None if rent is None else rent * sized.replicas * HOURS_PER_MONTH
    return ServeAdvice(sized, monthly, found, sleep, routing, tuple(notes))


def serving_options(
    model: Subject, cards: Sequence[Accelerator], prices: CurrentPrices, assumptions: Assumptions
) -> tuple[tuple[ServingOption, ...], list[str]]:
    """The accelerators that hold the model, the best first, and the assumptions in words."""
    priced = {card.name: (card, _prices(card, prices, assumptions)) for card in cards}
    notes = [*model.notes]
    if assumptions.batch is None:
        most = assumptions.serving_most_sequences
        notes.append(f"as many concurrent requests as fit in memory, at most {most} (--assume batch=N)")
    if assumptions.prompt_tokens:
        notes.append(
            f"{assumptions.prompt_tokens:g} prompt tokens a request, processed between generation steps on the same "
            "GPUs"
        )
    else:
        notes.append("the work for prompts is not counted (--prompt-tokens)")
    notes += [
        "speeds are estimates within a factor of 1.5 of published ones; measure yours",
        "rented and reserved: whole machines",
        f"owned: the GPU's street price over {assumptions.years:g} years and its board power at "
        f"${assumptions.kwh_usd:g}/kWh, PUE {assumptions.pue:g}; no host, no staff",
    ]
    found = options(model, priced.values(), assumptions)
    notes += dict.fromkeys(one.pace_text for one in found if one.pace_text)
    if not found or not assumptions.prompt_tokens:
        return found, notes

    def simulate(option: ServingOption) -> ServingOption:
        return simulated(option, model, *priced[option.accelerator], assumptions)

    ranked = settled(found, simulate)
    best = ranked[0]
    before = next(one for one in found if (one.accelerator, one.precision) == (best.accelerator, best.precision))
    if best.replicas > before.replicas:
        notes.append(f"{best.replicas} replicas instead of {before.replicas}, to meet the p95 at random arrivals")
    return ranked, notes


def _prices(card: Accelerator, prices: CurrentPrices, assumptions: Assumptions) -> GpuHourPrices:
    rented, reserved = CapacityType.ON_DEMAND, CapacityType.RESERVED
    low, high = card.street_price or (None, None)
    power = energy_usd_per_hour(card.tdp_w or 0.0, assumptions.kwh_usd, assumptions.pue)
    owned = (low + high) / 2 / (assumptions.years * HOURS_PER_YEAR) + power if low and high else None
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


def route_tasks(tiers: Sequence[str], tasks: Sequence[str]) -> Routing | None:
    """The smallest sufficient model for each kind of task; None without tiers and tasks. Raises InvalidInput."""
    if not tiers and not tasks:
        return None
    known, kinds = [], []
    for text in tiers:
        name, figures = named_numbers(text, "--tier", "NAME:QUALITY:SECONDS:USD", 3)
        known.append(Tier(name, *figures))
    for text in tasks:
        name, (count, *wanted) = named_numbers(text, "--task", "NAME:COUNT:QUALITY[:SECONDS]", 2, 3)
        kinds.append(TaskClass(name, int(count), *wanted))
    return route(known, kinds)
