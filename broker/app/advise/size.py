"""The memory of a model, the accelerators that hold it at their current prices, and how it is divided among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from broker.app.advise.prices import CurrentPrices, Quote
from broker.core.market.offers import CapacityType
from broker.core.values.accelerators import Accelerator, known, lookup
from broker.core.values.units import split_machine
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.figures import HIDDEN, Count, count_text
from broker.economics.fits import Fit, fits
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
    def cheapest(self) -> Quote | None:
        """The cheaper of the two quotes."""
        return min((q for q in (self.on_demand, self.spot) if q), key=lambda q: q.usd_per_hour, default=None)


@dataclass(frozen=True, slots=True)
class Supply:
    """``offers``: the number of offers with enough accelerators per machine; of these ``linked`` by NVLink,
    ``unlinked``, and ``unknown``. ``price``: the cheapest suitable one; None without any."""

    offers: int
    linked: int
    unlinked: int
    unknown: int
    price: Quote | None

    @property
    def text(self) -> str:
        if not self.offers:
            return "no offer of such a machine is known"
        doubt = f" ({self.unknown} do not say)" if self.unknown else ""
        price = self.price
        each = f", from ${price.usd_per_hour:,.2f}/h for {price.machines} × {price.machine}" if price else ""
        return f"{self.linked} of {self.offers} offers of such a machine or a larger one have NVLink{doubt}{each}"


@dataclass(frozen=True, slots=True)
class SizeAdvice:
    """The memory of a model, and the accelerators that hold it: cheapest first, without a layout the smallest of each,
    with one (``layout_stated``) only those that hold it in that layout. ``parallelism`` of the first; ``constraint``:
    the part of a job file that requests such machines."""

    parameters: Annotated[Count, HIDDEN]
    method: Annotated[Method, HIDDEN]
    precision: Annotated[Precision, HIDDEN]
    memory: MemoryEstimate
    lower_bound_80gb_cards: int
    layout_stated: Annotated[bool, HIDDEN]
    accelerators: tuple[PricedFit, ...]
    parallelism: ParallelPlan | None
    supply: Supply | None
    constraint: dict[str, Any]
    assumptions: tuple[str, ...]

    @property
    def title(self) -> str:
        of = f"{count_text(self.parameters)} {self.method}, weights in {self.precision}"
        held = "" if self.accelerators else "; no accelerator holds it" + " in this layout" * self.layout_stated
        return f"{of}: {self.memory.total_gib:,.1f} GiB{held}"


def size(
    model: Subject,
    method: Method,
    accelerators: Sequence[str],
    prices: CurrentPrices,
    assumptions: Assumptions = DEFAULTS,
) -> SizeAdvice:
    """The advice for a model on the named accelerators, or on all. Raises InvalidInput, also if the only accelerator
    that is named does not hold the model."""
    given = assumptions
    stated = given.offload or any(getattr(given, name) is not None for name in _LAYOUT)
    degrees = (given.tensor_degree or 1, given.pipeline_degree or 1)
    total = given.gpus if given.gpus and stated else degrees[0] * degrees[1]
    layout = ParallelLayout(total, *degrees, given.zero or 0, given.offload)
    needs = estimate(model.workload(method, given), layout, given)
    cards = named_or_all(accelerators)
    found = priced_fits(needs, cards, prices, fixed=stated, assumptions=given)
    plan = supply = None
    if not stated and (found or len(cards) == 1):
        card = lookup(found[0].fit.accelerator) if found else cards[0]
        plan, supply = _parallelism(needs, card, prices, given)
    notes = [*model.notes, *needs.assumptions, f"{given.memory_headroom:.0%} of GPU memory kept free"]
    if not stated:
        notes.append(f"1, 2, 4 … GPUs up to one machine of {given.gpus_per_node}, then whole machines")
    return SizeAdvice(
        parameters=model.parameters,
        method=method,
        precision=needs.workload.weights,
        memory=needs,
        lower_bound_80gb_cards=lower_bound_cards(needs.total_gib, given.reference_card_usable_gib),
        layout_stated=stated,
        accelerators=found,
        parallelism=plan,
        supply=supply,
        constraint=constraint(plan) if plan else {},
        assumptions=tuple(notes),
    )


def named_or_all(names: Sequence[str]) -> list[Accelerator]:
    """The named accelerators, or all known ones. Raises `UnknownName` with a suggestion."""
    return [lookup(name) for name in names or known()]


def priced_fits(
    needs: MemoryEstimate,
    accelerators: Sequence[Accelerator],
    prices: CurrentPrices,
    *,
    fixed: bool = False,
    assumptions: Assumptions = DEFAULTS,
) -> tuple[PricedFit, ...]:
    """The accelerators that hold the workload, cheapest first, those without a price last."""
    found = []
    for fit in fits(needs, accelerators, fixed=fixed, assumptions=assumptions):
        per_machine = min(fit.gpus, assumptions.gpus_per_node)
        machines = -(-fit.gpus // per_machine)
        quotes = (
            prices.quote(fit.accelerator, per_machine, machines, kind)
            for kind in (CapacityType.ON_DEMAND, CapacityType.SPOT)
        )
        found.append(PricedFit(fit, *quotes))
    return tuple(sorted(found, key=_by_price))


def _by_price(row: PricedFit) -> tuple[bool, float, int]:
    best = row.cheapest
    return best is None, best.usd_per_hour if best else 0.0, row.fit.gpus


def _parallelism(
    needs: MemoryEstimate, card: Accelerator, prices: CurrentPrices, assumptions: Assumptions
) -> tuple[ParallelPlan, Supply]:
    """How the workload is divided, and which offers allow it."""
    chosen = choose(needs, card, linked=assumptions.nvlink, gpus=assumptions.gpus, assumptions=assumptions)
    found = supply(prices, chosen)
    if assumptions.nvlink is None and found.linked == 0 and found.offers:
        # The GPU supports NVLink, but no offered machine has it.
        chosen = choose(needs, card, linked=False, gpus=assumptions.gpus, assumptions=assumptions)
        found = supply(prices, chosen)
    return chosen, found


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
    return Supply(total, linked, total - linked - unknown, unknown, next((quote for quote in quotes if quote), None))
