"""Ways to train: each accelerator and method with its memory, time and cost, and the best one."""

from dataclasses import dataclass, replace
from math import ceil

from broker.app.advise.deploy.files import PRIVATE
from broker.app.advise.deploy.situation import DeployDemand
from broker.app.advise.prices import PAID_FOR, CurrentPrices, Quote
from broker.core.errors import InvalidInput
from broker.core.market.accelerators import Accelerator, accelerator_names, lookup
from broker.core.market.offers import CapacityType
from broker.core.values.units import split_machine
from broker.economics.assumptions import Assumptions
from broker.economics.fits import MAX_GPUS
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


def training_tokens(situation: DeployDemand, assumptions: Assumptions) -> float:
    """The number of training tokens: as stated, else the usual number."""
    if assumptions.tokens is not None:
        return assumptions.tokens
    if situation.goal is Goal.PRETRAIN:
        return assumptions.pretraining_tokens_per_parameter * situation.model.parameters
    return assumptions.fine_tuning_tokens


def training_methods(situation: DeployDemand) -> tuple[Method, ...]:
    """The methods to compare: an adaptation need not train every weight."""
    if situation.method is not None:
        return (situation.method,)
    return (Method.ADAMW,) if situation.goal is Goal.PRETRAIN else (Method.QLORA, Method.LORA, Method.ADAMW)


def training_ways(situation: DeployDemand, prices: CurrentPrices, assumptions: Assumptions) -> tuple[Way, ...]:
    """The ways with a price that finish in time, adaptations first, then the cheapest; if none finishes in time, the
    fastest first."""
    candidates = []
    for method in training_methods(situation):
        default_precision = None if method is Method.QLORA else Precision.BF16
        method_assumptions = replace(
            assumptions,
            precision=assumptions.precision or default_precision,
            recomputation=assumptions.recomputation or Recomputation.FULL,
        )
        needs = estimate(situation.model.workload(method, method_assumptions), assumptions=assumptions)
        for name in accelerator_names():
            card = lookup(name)
            if card.inference_only or card.maturity < assumptions.least_maturity:
                continue
            candidates += _ways_on(situation, needs, card, prices, assumptions)
    # Machines on which no engine starts jobs are the last resort but for prices that are too old to rely on.
    best_standing = min((way.quote.standing for way in candidates), default=None)
    candidates = [way for way in candidates if way.quote.standing == best_standing]
    in_time = [
        way for way in candidates if (assumptions.deadline_hours is None or way.hours <= assumptions.deadline_hours)
    ]
    if in_time:  # full training last: only if requested, or if no adaptation finishes in time
        return tuple(sorted(in_time, key=lambda way: (way.method is Method.ADAMW, way.usd, way.hours)))
    return tuple(sorted(candidates, key=lambda way: (way.hours, way.usd)))


def _ways_on(
    situation: DeployDemand, needs: MemoryEstimate, card: Accelerator, prices: CurrentPrices, assumptions: Assumptions
) -> list[Way]:
    try:
        smallest_plan = choose(needs, card, assumptions=assumptions)
        single_gpu_time = training_time(
            card,
            parameters=situation.model.active,
            tokens=training_tokens(situation, assumptions),
            gpus=1,
            assumptions=assumptions,
        )
    except InvalidInput:  # does not fit, or the accelerator's speed is unknown
        return []
    if smallest_plan.gpus > 1 and smallest_plan.interconnect == "pcie":
        return []
    slowdown = 1 - assumptions.consumer_heat_loss if card.consumer else 1.0
    gpu_hours = single_gpu_time.gpu_hours / slowdown
    gpus = min(
        _required_gpus(situation, smallest_plan.gpus, gpu_hours, card, assumptions),
        MAX_GPUS // smallest_plan.gpus * smallest_plan.gpus,
    )
    plan = smallest_plan if gpus == smallest_plan.gpus else choose(needs, card, gpus=gpus, assumptions=assumptions)
    _, per_machine = split_machine(plan.machine)
    candidates = []
    quotes = [prices.quote(card.name, per_machine, plan.num_nodes, CapacityType.ON_DEMAND)]
    if plan.num_nodes <= assumptions.spot_most_machines:
        quotes.append(prices.quote(card.name, per_machine, plan.num_nodes, CapacityType.SPOT))
    if situation.owned_only or not situation.places.limited:  # recorded capacity, at its marginal cost
        kinds = PRIVATE if situation.owned_only else PAID_FOR  # sensitive data stays off reserved machines of others
        quotes.append(prices.paid_for(card.name, per_machine, plan.num_nodes, kinds))
    for quote in filter(None, quotes):
        filled_plan = _fill_machine(needs, card, plan, smallest_plan.gpus, quote, assumptions)
        duration = gpu_hours / filled_plan.gpus
        if quote.capacity_type is CapacityType.SPOT:
            duration *= 1 + assumptions.spot_overhead_on(card.name, filled_plan.gpus)[0]
        if quote.capacity_type is not CapacityType.OWNED:  # rented machines are paid for while they start
            duration += assumptions.start_up_hours
        candidates.append(
            Way(
                needs.workload.method,
                needs,
                card,
                filled_plan,
                gpu_hours,
                duration,
                quote,
                duration * quote.usd_per_hour,
            )
        )
    return candidates


def _fill_machine(
    needs: MemoryEstimate, card: Accelerator, plan: ParallelPlan, group: int, quote: Quote, assumptions: Assumptions
) -> ParallelPlan:
    """The plan on all accelerators of the machine, all of which are paid for, if it has more than were requested and
    ``group``, the smallest number that holds the model, divides them."""
    _, machine_gpus = split_machine(quote.machine)
    if plan.num_nodes > 1 or card.consumer or machine_gpus <= plan.gpus or machine_gpus % group:
        return plan
    return choose(needs, card, gpus=machine_gpus, assumptions=assumptions)


def _required_gpus(
    situation: DeployDemand, group: int, gpu_hours: float, card: Accelerator, assumptions: Assumptions
) -> int:
    """The fewest accelerators, in whole groups and machines, that finish in time with the margin; without a deadline
    the smallest group. Scaling is included in the MFU, which is that of runs on whole clusters."""
    if assumptions.deadline_hours is None:
        return group
    exact = gpu_hours / (assumptions.deadline_hours * (1 - assumptions.deadline_margin))
    gpus = ceil(exact / group) * group
    machine = assumptions.gpus_per_node
    if gpus > machine:
        if card.consumer:
            return max(group, machine // group * group)
        gpus = ceil(gpus / machine) * machine
    return max(gpus, group)
