"""Replicas and GPUs for a traffic, from a measured speed or for each accelerator that holds the model; scale to zero;
the smallest sufficient model for each kind of task."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from broker.app.advise.prices import STATED_SOURCE, CurrentPrices
from broker.app.advise.size import accelerators_or_all
from broker.core.errors import InvalidInput
from broker.core.market.accelerators import Accelerator
from broker.core.market.offers import CapacityType
from broker.core.market.price_basis import machine_usd
from broker.core.values.figures import plural
from broker.economics.assumptions import Assumptions, named_numbers
from broker.economics.energy import energy_usd_per_hour
from broker.economics.figures import EstimatedUsd, usd_text
from broker.economics.memory import Subject
from broker.economics.serving import (
    Routing,
    ScaleToZero,
    ServingPlan,
    TaskClass,
    Tier,
    plan,
    route,
    scale_to_zero,
    sequences_within_limit,
)
from broker.economics.serving_options import (
    GpuHourPrices,
    MachinePrice,
    ServingOption,
    cheapest_mix,
    cpu_machine,
    options,
    with_simulated_best,
    with_simulation,
)
from broker.economics.units import HOURS_PER_MONTH, HOURS_PER_YEAR

_SELDOM = 0.1  # of the time with a request: below it, scale to zero is worth a comparison


@dataclass(frozen=True, slots=True)
class ServeAdvice:
    """Replicas and GPUs. ``options``: the accelerators that hold the model, the best first; none without a
    model."""

    plan: ServingPlan
    monthly_usd: EstimatedUsd | None
    options: tuple[ServingOption, ...]
    scale_to_zero: ScaleToZero | None
    routing: Routing | None
    assumptions: tuple[str, ...]

    @property
    def title(self) -> str:
        serving_plan, best = self.plan, self.options[0] if self.options else None
        gpus = plural(serving_plan.gpus, "GPU")
        if best:
            place = f"{gpus} {best.accelerator}" if best.gpus else best.accelerator
            gpus = f"{place} with {best.precision} weights"
        warning = "; TOO SLOW with any number of replicas" if serving_plan.meets_latency is False else ""
        return f"{plural(serving_plan.replicas, 'replica')} on {gpus}{warning}"


def serving_advice(
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
    measured_speed, rent = assumptions.replica_tokens_per_second, assumptions.rent_usd_per_hour
    notes = [f"{assumptions.serving_headroom:.0%} headroom"]
    fitting_options: tuple[ServingOption, ...] = ()
    assumptions, speed_notes = _with_stated_speed(assumptions)
    if model is not None:
        cards = accelerators_or_all(accelerators)
        fitting_options, option_notes = serving_options(model, cards, prices, assumptions, cpus=not accelerators)
        notes += option_notes
        if measured_speed is not None and not accelerators:
            notes.append("every accelerator is taken to have that speed: name the measured one with --gpu")
    notes += speed_notes
    if measured_speed is not None and model is None:
        serving_plan = plan(
            assumptions,
            tokens_per_second_per_replica=measured_speed,
            gpus_per_replica=assumptions.gpus_per_replica,
            batch=assumptions.batch or sequences_within_limit(assumptions),
        )
    elif model is not None and fitting_options:
        best = fitting_options[0]
        serving_plan = plan(
            replace(assumptions, least_replicas=best.replicas),  # simulated latencies may take more than the formula
            tokens_per_second_per_replica=best.tokens_per_second_per_replica,
            gpus_per_replica=best.gpus_per_replica,
            batch=best.batch,
        )
        if not assumptions.spare_machines:
            single, _ = serving_options(model, cards, prices, replace(assumptions, requests_per_minute=0.01))
            notes += _mix_notes(fitting_options, single, serving_plan.required_tokens_per_second)
        if rent is None and best.monthly_usd_on_demand:
            rent = best.monthly_usd_on_demand / HOURS_PER_MONTH / best.replicas
    elif model is None:
        raise InvalidInput(
            "the speed of a replica is missing", hint="name the model, or give --assume replica_tokens_per_second=N"
        )
    else:
        raise InvalidInput("no accelerator holds the model", hint="reduce the context or the batch")
    zero_scaling = None
    busy = (assumptions.requests_per_minute or 0.0) / 60 * (serving_plan.p95_s or inf)
    if assumptions.idle_share is None and busy < _SELDOM:
        notes.append(
            f"requests are answered in {busy:.1%} of the time at most: --assume idle_share={1 - busy:.2f} compares "
            "scale to zero"
        )
    if assumptions.idle_share is not None:
        if rent is None:
            raise InvalidInput("the cost of a replica is missing", hint="give --assume rent_usd_per_hour=USD")
        zero_scaling = scale_to_zero(rent, serving_plan.replicas, assumptions)
    monthly = None if rent is None else rent * serving_plan.replicas * HOURS_PER_MONTH
    return ServeAdvice(serving_plan, monthly, fitting_options, zero_scaling, routing, tuple(notes))


def _mix_notes(
    candidates: Sequence[ServingOption], single: Sequence[ServingOption], required_tokens_per_second: float
) -> list[str]:
    """Two kinds of machines that carry for less what the first option carries. ``single``: machines of one replica."""
    best = candidates[0]  # with simulated arrivals it has more replicas than the traffic alone requires
    needed = max(required_tokens_per_second, (best.replicas - 1) * best.tokens_per_second_per_replica)
    fast = {_replica(option) for option in candidates if option.meets_latency is not False}
    machines = [option for option in (*candidates, *single) if _replica(option) in fast]
    alone, (usd, mix) = best.monthly_usd_on_demand or 0.0, cheapest_mix(machines, needed) or (inf, "")
    saved = f"{1 - usd / alone:.0%} less, each at its own latency; a router has to send each its share" if alone else ""
    return [f"mixed: {mix} cost {usd_text(usd)} a month, {saved}"] if usd < 0.99 * alone else []


def _replica(option: ServingOption) -> tuple[object, ...]:
    return option.accelerator, option.precision, option.gpus_per_replica, option.batch


def _with_stated_speed(assumptions: Assumptions) -> tuple[Assumptions, list[str]]:
    """The assumptions with the requests at once of a replica of the stated speed, and what is said of that speed."""
    speed, at_once = assumptions.replica_tokens_per_second, sequences_within_limit(assumptions)
    notes = [] if speed is None else [f"{speed:g} tokens/s per replica, as given"]
    if at_once is None:
        return assumptions, notes
    notes.append(
        f"the latency is that of a replica with this speed at no more than {at_once:,} requests at once; if it was "
        "measured with more, give --assume batch=N"
    )
    return replace(assumptions, serving_most_sequences=at_once), notes


def serving_options(
    model: Subject, cards: Sequence[Accelerator], prices: CurrentPrices, assumptions: Assumptions, *, cpus: bool = False
) -> tuple[tuple[ServingOption, ...], list[str]]:
    """The accelerators that hold the model, the best first, and the assumptions in words. ``cpus``: machines without
    accelerators are candidates for a small model."""
    priced_cards = {card.name: (card, _prices(card, prices, assumptions)) for card in cards}
    if cpus:
        priced_cards |= cpu_candidates(model, prices, assumptions)
    notes = [*model.notes]
    if assumptions.batch is None:
        max_requests = assumptions.serving_most_sequences
        notes.append(f"as many concurrent requests as fit in memory, at most {max_requests} (--assume batch=N)")
    if assumptions.p95_s is None:
        notes.append("no latency is required: the cheapest is first, however slow (--p95 SECONDS)")
    room = max(assumptions.context or 0, assumptions.prompt_tokens + assumptions.tokens_per_request)
    notes.append(f"memory for {room:,.0f} tokens of each request, prompt and answer (--assume context=N)")
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
    fitting_options = options(model, priced_cards.values(), assumptions)
    notes += _cpu_notes(fitting_options, prices, assumptions)
    notes += dict.fromkeys(candidate.pace_text for candidate in fitting_options if candidate.pace_text)
    # Simulated arrivals need the requests at once at which a stated speed was measured.
    is_simulated = assumptions.prompt_tokens and (
        assumptions.replica_tokens_per_second is None or assumptions.batch is not None
    )
    if not fitting_options or not is_simulated:
        return fitting_options, [*_price_note(fitting_options), *notes]

    def simulate(option: ServingOption) -> ServingOption:
        return with_simulation(option, model, *priced_cards[option.accelerator], assumptions)

    ranked_options = with_simulated_best(fitting_options, simulate)
    best = ranked_options[0]
    unsimulated = next(
        candidate
        for candidate in fitting_options
        if (candidate.accelerator, candidate.precision) == (best.accelerator, best.precision)
    )
    if best.replicas > unsimulated.replicas:
        notes.append(f"{best.replicas} replicas instead of {unsimulated.replicas}, to meet the p95 at random arrivals")
    return ranked_options, [*_price_note(ranked_options), *notes]


def _price_note(ranked: Sequence[ServingOption]) -> list[str]:
    """The price of a machine of the first option with its origin; none for machines without GPUs (`_cpu_notes`)."""
    best = ranked[0] if ranked else None
    if best is None or not best.gpus or best.machine_usd_per_hour is None:
        return []
    machine = f"{best.accelerator}:{best.gpus_per_machine}"
    return [f"${best.machine_usd_per_hour:,.2f}/h of {machine} ({best.price_origin})"]


def cpu_candidates(
    model: Subject, prices: CurrentPrices, assumptions: Assumptions
) -> dict[str, tuple[Accelerator, GpuHourPrices]]:
    """The machines without accelerators, by name; none for a large model, or where the speed of a GPU is stated."""
    if model.parameters >= assumptions.cpu_below_parameters or assumptions.replica_tokens_per_second is not None:
        return {}
    cards = {}
    for basis in prices.cpus:
        offer = basis.offer
        card = cpu_machine(offer.cpus or 0, offer.memory_gib or 0, assumptions)
        cards[card.name] = card, GpuHourPrices(machines=(MachinePrice(1, machine_usd(offer), basis.origin),))
    return cards


def _cpu_notes(fitting_options: Sequence[ServingOption], prices: CurrentPrices, assumptions: Assumptions) -> list[str]:
    """The price of the best machine without accelerators, and the basis of its speed."""
    best = next((option.accelerator for option in fitting_options if not option.gpus), None)
    if best is None:
        return []
    basis = next(basis for basis in prices.cpus if f"{basis.offer.cpus:g} vCPUs" == best)
    return [
        f"{best}: ${machine_usd(basis.offer):,.4g}/h of {basis.offer.instance_type}, {basis.origin}",
        f"CPUs: {assumptions.cpu_gb_s:g} GB/s (cpu_gb_s) and {assumptions.cpu_tflops:g} TFLOPS (cpu_tflops) per vCPU, "
        "from published and own figures; measure yours",
    ]


def _prices(card: Accelerator, prices: CurrentPrices, assumptions: Assumptions) -> GpuHourPrices:
    rented, reserved = CapacityType.ON_DEMAND, CapacityType.RESERVED
    low, high = card.street_price or (None, None)
    energy_price = energy_usd_per_hour(card.tdp_w or 0.0, assumptions.kwh_usd, assumptions.pue)
    owned_price = (low + high) / 2 / (assumptions.years * HOURS_PER_YEAR) + energy_price if low and high else None
    per_gpu = {}
    for kind in (reserved, rented):
        quote = prices.gpu_hour(card.name, kind)
        per_gpu[kind] = quote.usd_per_gpu_hour if quote else None
    machines = (_machines(prices, card.name, kind) for kind in (rented, reserved))
    return GpuHourPrices(owned_price, per_gpu[reserved], per_gpu[rented], *machines)


def _machines(prices: CurrentPrices, accelerator: str, kind: CapacityType) -> tuple[MachinePrice, ...]:
    if accelerator in prices.stated:
        return tuple(MachinePrice(size, prices.stated[accelerator] * size, STATED_SOURCE) for size in (1, 2, 4, 8))
    sizes = sorted({offer.count for offer in prices.offers.get(accelerator, ()) if offer.capacity_type is kind})
    quotes = [(size, prices.quote(accelerator, size, 1, kind)) for size in sizes]
    return tuple(MachinePrice(size, quote.usd_per_hour, quote.basis) for size, quote in quotes if quote is not None)


def route_tasks(tiers: Sequence[str], tasks: Sequence[str]) -> Routing | None:
    """The smallest sufficient model for each kind of task; None without tiers and tasks. Raises InvalidInput."""
    if not tiers and not tasks:
        return None
    model_tiers, kinds = [], []
    for text in tiers:
        name, figures = named_numbers(text, "--tier", "NAME:QUALITY:SECONDS:USD", 3)
        model_tiers.append(Tier(name, *figures))
    for text in tasks:
        name, (count, *requirements) = named_numbers(text, "--task", "NAME:COUNT:QUALITY[:SECONDS]", 2, 3)
        kinds.append(TaskClass(name, int(count), *requirements))
    return route(model_tiers, kinds)
