"""Ways to train: each accelerator and method with its memory, time and cost, and the best one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from broker.app.advise.deploy.files import PRIVATE
from broker.app.advise.deploy.situation import DeployDemand
from broker.app.advise.prices import PAID_FOR, CurrentPrices, Quote
from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType
from broker.core.values.accelerators import Accelerator, known, lookup
from broker.core.values.units import split_machine
from broker.economics.assumptions import Assumptions
from broker.economics.fits import MOST_GPUS
from broker.economics.kinds import Goal, Method, Precision, Recomputation
from broker.economics.memory import MemoryEstimate, estimate
from broker.economics.parallelism import ParallelPlan, choose
from broker.economics.throughput import training_time


@dataclass(frozen=True, slots=True)
class Way:
    """A method on a number of accelerators: ``hours`` from start to end, ``usd`` at the price of ``quote``."""

    method: Method
    needs: MemoryEstimate
    card: Accelerator
    plan: ParallelPlan
    gpu_hours: float
    hours: float
    quote: Quote
    usd: float

    @property
    def spot(self) -> bool:
        return self.quote.capacity_type is CapacityType.SPOT


def tokens_of(situation: DeployDemand, assumptions: Assumptions) -> float:
    """The number of training tokens: as stated, else the usual number."""
    if assumptions.tokens is not None:
        return assumptions.tokens
    if situation.goal is Goal.PRETRAIN:
        return assumptions.pretraining_tokens_per_parameter * situation.model.parameters
    return assumptions.fine_tuning_tokens


def methods_of(situation: DeployDemand) -> tuple[Method, ...]:
    """The methods to compare: an adaptation need not train every weight."""
    if situation.method is not None:
        return (situation.method,)
    return (Method.ADAMW,) if situation.goal is Goal.PRETRAIN else (Method.QLORA, Method.LORA, Method.ADAMW)


def ways(situation: DeployDemand, prices: CurrentPrices, assumptions: Assumptions) -> tuple[Way, ...]:
    """The ways with a price that finish in time, adaptations first, then the cheapest; if none finishes in time, the
    fastest first."""
    found = []
    for method in methods_of(situation):
        usual = None if method is Method.QLORA else Precision.BF16
        given = replace(
            assumptions,
            precision=assumptions.precision or usual,
            recomputation=assumptions.recomputation or Recomputation.FULL,
        )
        needs = estimate(situation.model.workload(method, given), assumptions=assumptions)
        for name in known():
            card = lookup(name)
            if card.inference_only or card.maturity < assumptions.least_maturity:
                continue
            found += _on(situation, needs, card, prices, assumptions)
    if any(way.quote.launchable for way in found):  # machines on which no engine starts jobs are the last resort
        found = [way for way in found if way.quote.launchable]
    in_time = [way for way in found if (assumptions.deadline_hours is None or way.hours <= assumptions.deadline_hours)]
    if in_time:  # full training last: only if requested, or if no adaptation finishes in time
        return tuple(sorted(in_time, key=lambda way: (way.method is Method.ADAMW, way.usd, way.hours)))
    return tuple(sorted(found, key=lambda way: (way.hours, way.usd)))


def _on(
    situation: DeployDemand, needs: MemoryEstimate, card: Accelerator, prices: CurrentPrices, assumptions: Assumptions
) -> list[Way]:
    try:
        least = choose(needs, card, assumptions=assumptions)
        alone = training_time(
            card,
            parameters=situation.model.active,
            tokens=tokens_of(situation, assumptions),
            gpus=1,
            assumptions=assumptions,
        )
    except InvalidInput:  # does not fit, or the accelerator's speed is unknown
        return []
    if least.gpus > 1 and least.interconnect == "pcie":
        return []
    slower = 1 - assumptions.consumer_heat_loss if card.consumer else 1.0
    gpu_hours = alone.gpu_hours / slower
    gpus = min(_enough(situation, least.gpus, gpu_hours, card, assumptions), MOST_GPUS // least.gpus * least.gpus)
    plan = least if gpus == least.gpus else choose(needs, card, gpus=gpus, assumptions=assumptions)
    _, per_machine = split_machine(plan.machine)
    found = []
    quotes = [prices.quote(card.name, per_machine, plan.num_nodes, CapacityType.ON_DEMAND)]
    if plan.num_nodes <= assumptions.spot_most_machines:
        quotes.append(prices.quote(card.name, per_machine, plan.num_nodes, CapacityType.SPOT))
    if situation.owned_only or not situation.places.limited:  # recorded capacity, at its marginal cost
        kinds = PRIVATE if situation.owned_only else PAID_FOR  # sensitive data stays off reserved machines of others
        quotes.append(prices.paid_for(card.name, per_machine, plan.num_nodes, kinds))
    for quote in filter(None, quotes):
        used = _every_paid_card(needs, card, plan, quote, assumptions)
        lasts = gpu_hours / used.gpus
        if quote.capacity_type is CapacityType.SPOT:
            lasts *= 1 + assumptions.spot_overhead_on(card.name, used.gpus)[0]
        if quote.capacity_type is not CapacityType.OWNED:  # rented machines are paid for while they start
            lasts += assumptions.start_up_hours
        found.append(Way(needs.workload.method, needs, card, used, gpu_hours, lasts, quote, lasts * quote.usd_per_hour))
    return found


def _every_paid_card(
    needs: MemoryEstimate, card: Accelerator, plan: ParallelPlan, quote: Quote, assumptions: Assumptions
) -> ParallelPlan:
    """The plan on all accelerators of the machine, all of which are paid for, if it has more than were requested."""
    _, there = split_machine(quote.machine)
    if plan.num_nodes > 1 or card.consumer or there <= plan.gpus or there % plan.gpus:
        return plan
    return choose(needs, card, gpus=there, assumptions=assumptions)


def _enough(situation: DeployDemand, group: int, gpu_hours: float, card: Accelerator, assumptions: Assumptions) -> int:
    """The fewest accelerators, in whole groups and machines, that finish in time with the margin; without a deadline
    the smallest group. Scaling is included in the MFU, which is that of runs on whole clusters."""
    if assumptions.deadline_hours is None:
        return group
    needed = gpu_hours / (assumptions.deadline_hours * (1 - assumptions.deadline_margin))
    gpus = ceil(needed / group) * group
    machine = assumptions.gpus_per_node
    if gpus > machine:
        if card.consumer:
            return max(group, machine // group * group)
        gpus = ceil(gpus / machine) * machine
    return max(gpus, group)
