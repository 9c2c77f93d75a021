"""The memory of a model, the accelerators that hold it at their current prices, and how it is divided among them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from broker.app.advise.prices import CurrentPrices, Quote
from broker.core.market.accelerators import Accelerator, accelerator_names, lookup
from broker.core.market.offers import CapacityType
from broker.core.market.price_basis import MachineClass, is_obtainable
from broker.core.values.figures import plural
from broker.core.values.units import split_machine
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.figures import HIDDEN, Count, count_text
from broker.economics.fits import Fit, find_fits
from broker.economics.kinds import Method, Precision
from broker.economics.memory import MemoryEstimate, ParallelLayout, Subject, estimate, lower_bound_cards
from broker.economics.parallelism import ParallelPlan, choose

NVLINK = "nvlink"
_LAYOUT = ("zero", "tensor_degree", "pipeline_degree")


@dataclass(frozen=True, slots=True)
class PricedFit:
    """A fit with its current prices; None if unknown."""

    fit: Fit
    on_demand: Quote | None
    spot: Quote | None

    @property
    def best(self) -> Quote | None:
        """On demand, unless jobs start on spot alone."""
        return _best(self.on_demand, self.spot)


@dataclass(frozen=True, slots=True)
class Supply:
    """``offers``: the number of offers with enough accelerators per machine; of these ``linked``, with the ``link``
    that the plan uses (empty: none), by `MachineClass`. ``price``: the cheapest suitable one; None without any."""

    offers: int
    linked: int
    link: str
    price: Quote | None

    @property
    def obstacle(self) -> str:
        return "no price of such a machine is known" if self.price is None else self.price.not_launched_on

    @property
    def text(self) -> str:
        if not self.offers:
            return "no offer of such a machine is known"
        price = self.price
        price_text = f", from ${price.usd_per_hour:,.2f}/h for {price.machines} × {price.machine}" if price else ""
        offers = f"{plural(self.offers, 'offer')} of this machine or a larger one"
        if self.link:
            offers = f"{self.linked} of {offers} with {self.link.replace('_', ' ').replace('nvlink', 'NVLink')}"
        return offers + price_text


@dataclass(frozen=True, slots=True)
class SizeAdvice:
    """The memory of a model, and the accelerators that hold it: those on which jobs start first, then cheapest first;
    without a layout the smallest of each, with one (``layout_stated``) only those that hold it in that layout.
    ``parallelism`` of the first; ``constraint``: the part of a job file that requests such machines; ``obstacle``: why
    no job starts on one now, empty if jobs do."""

    parameters: Annotated[Count, HIDDEN]
    method: Annotated[Method, HIDDEN]
    precision: Annotated[Precision, HIDDEN]
    memory: MemoryEstimate
    lower_bound_80gb_cards: int
    layout_stated: Annotated[bool, HIDDEN]
    accelerators: tuple[PricedFit, ...]
    parallelism: ParallelPlan | None
    supply: Supply | None
    obstacle: str
    constraint: dict[str, Any]
    assumptions: tuple[str, ...]

    @property
    def title(self) -> str:
        workload_text = f"{count_text(self.parameters)} {self.method}, weights in {self.precision}"
        warning = "" if self.accelerators else "; no accelerator holds it" + " in this layout" * self.layout_stated
        return f"{workload_text}: {self.memory.total_gib:,.1f} GiB{warning}"


def size_advice(
    model: Subject,
    method: Method,
    accelerators: Sequence[str],
    prices: CurrentPrices,
    assumptions: Assumptions = DEFAULTS,
) -> SizeAdvice:
    """The advice for a model on the named accelerators, or on all. Raises InvalidInput, also if the only accelerator
    that is named does not hold the model."""
    inputs = assumptions
    has_layout = inputs.offload or any(getattr(inputs, name) is not None for name in _LAYOUT)
    degrees = (inputs.tensor_degree or 1, inputs.pipeline_degree or 1)
    total = inputs.gpus if inputs.gpus and has_layout else degrees[0] * degrees[1]
    layout = ParallelLayout(total, *degrees, inputs.zero or 0, inputs.offload)
    needs = estimate(model.workload(method, inputs), layout, inputs)
    cards = accelerators_or_all(accelerators)
    priced = priced_fits(needs, cards, prices, is_fixed=has_layout, assumptions=inputs)
    plan = supply = None
    if not has_layout and (priced or len(cards) == 1):
        card = lookup(priced[0].fit.accelerator) if priced else cards[0]
        plan, supply = _parallelism(needs, card, prices, inputs)
    notes = [*model.notes, *needs.assumptions, f"{inputs.memory_headroom:.0%} of GPU memory kept free"]
    if not has_layout:
        notes.append(f"1, 2, 4 … GPUs up to one machine of {inputs.gpus_per_node}, then whole machines")
    return SizeAdvice(
        parameters=model.parameters,
        method=method,
        precision=needs.workload.weights,
        memory=needs,
        lower_bound_80gb_cards=lower_bound_cards(needs.total_gib, inputs.reference_card_usable_gib),
        layout_stated=has_layout,
        accelerators=priced,
        parallelism=plan,
        supply=supply,
        obstacle=supply.obstacle if supply else "",
        constraint=constraint(plan, supply.price) if plan and supply else {},
        assumptions=tuple(notes),
    )


def accelerators_or_all(names: Sequence[str]) -> list[Accelerator]:
    """The named accelerators, or all known ones. Raises `UnknownName` with a suggestion."""
    return [lookup(name) for name in names or accelerator_names()]


def priced_fits(
    needs: MemoryEstimate,
    accelerators: Sequence[Accelerator],
    prices: CurrentPrices,
    *,
    is_fixed: bool = False,
    assumptions: Assumptions = DEFAULTS,
) -> tuple[PricedFit, ...]:
    """The accelerators that hold the workload: those on which jobs start first, then cheapest first, those without a
    price last."""
    priced = []
    for fit in find_fits(needs, accelerators, fixed=is_fixed, assumptions=assumptions):
        per_machine = min(fit.gpus, assumptions.gpus_per_node)
        machines = -(-fit.gpus // per_machine)
        quotes = (
            prices.quote(fit.accelerator, per_machine, machines, kind)
            for kind in (CapacityType.ON_DEMAND, CapacityType.SPOT)
        )
        priced.append(PricedFit(fit, *quotes))
    return tuple(sorted(priced, key=_price_order))


def _best(*quotes: Quote | None) -> Quote | None:
    """The first quote on which jobs start, else the first one."""
    return min(filter(None, quotes), key=lambda quote: not quote.launchable, default=None)


def _price_order(row: PricedFit) -> tuple[bool, bool, float, int]:
    best = row.best
    return best is None, best is not None and not best.launchable, best.usd_per_hour if best else 0.0, row.fit.gpus


def _parallelism(
    needs: MemoryEstimate, card: Accelerator, prices: CurrentPrices, assumptions: Assumptions
) -> tuple[ParallelPlan, Supply]:
    """How the workload is divided, and which offers allow it."""
    parallel_plan = choose(needs, card, linked=assumptions.nvlink, gpus=assumptions.gpus, assumptions=assumptions)
    plan_supply = supply(prices, parallel_plan)
    if assumptions.nvlink is None and plan_supply.linked == 0 and plan_supply.offers:
        # The GPU has a fast link, but no offered machine has it.
        parallel_plan = choose(needs, card, linked=False, gpus=assumptions.gpus, assumptions=assumptions)
        plan_supply = supply(prices, parallel_plan)
    return parallel_plan, plan_supply


def constraint(plan: ParallelPlan, price: Quote | None) -> dict[str, Any]:
    """The part of a job file that requests such machines: also larger ones, or spot, if the ``price`` is of those."""
    larger = price is not None and split_machine(price.machine)[1] > split_machine(plan.machine)[1]
    job: dict[str, Any] = {"resources": {"accelerators": f"{plan.machine}{'+' * larger}"}}
    if price is not None and price.capacity_type is CapacityType.SPOT:
        job["resources"]["use_spot"] = True
    if plan.num_nodes > 1:
        job["num_nodes"] = plan.num_nodes
    if plan.interconnect == NVLINK:
        job["constraints"] = {"interconnect": NVLINK}
    return job


def supply(prices: CurrentPrices, plan: ParallelPlan) -> Supply:
    """The offers of the machines that the plan needs."""
    _, per_machine = split_machine(plan.machine)
    known_offers = filter(is_obtainable, prices.offers.get(plan.accelerator, ()))
    offers = [offer for offer in known_offers if offer.count >= per_machine]
    linked = [offer for offer in offers if MachineClass.of(offer).linked]
    link = (lookup(plan.accelerator).link or "") if plan.interconnect != "none" else ""
    # A job that asks for NVLink starts only where an offer says that it has it.
    certain = [offer for offer in linked if offer.interconnect == NVLINK] if plan.interconnect == NVLINK else linked
    matching_offers = certain if plan.interconnect == link else offers
    matching_prices = replace(prices, offers={plan.accelerator: matching_offers})
    kinds = (CapacityType.ON_DEMAND, CapacityType.SPOT, CapacityType.RESERVED)
    quotes = (matching_prices.quote(plan.accelerator, per_machine, plan.num_nodes, kind) for kind in kinds)
    return Supply(len(offers), len(linked), link, _best(*quotes))
