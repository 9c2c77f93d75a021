"""Accelerators and precisions for a traffic: replicas, whole machines, latency, and the cost of a month.

Amounts USD, a month 730 hours. The speed of a replica is that of `broker.economics.replica`.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Annotated

from broker.core.market.accelerators import Accelerator
from broker.economics.assumptions import Assumptions
from broker.economics.families import shape_for
from broker.economics.figures import HIDDEN, Estimate, EstimatedUsd, Seconds, Share, Usd, number_text
from broker.economics.fits import find_fits
from broker.economics.kinds import Method, Precision
from broker.economics.memory import ModelUse, Subject, estimate
from broker.economics.replica import (
    ReplicaSpeed,
    ServedModel,
    prompt_seconds,
    replica_speed,
    step_seconds,
    with_measured_pace,
)
from broker.economics.serving import MAX_REPLICAS, plan
from broker.economics.units import GB, GIB, HOURS_PER_MONTH, ceil, not_negative, positive, whole

# Latency of a replica under random arrivals, by simulation. Times seconds.
#
# Requests arrive as a Poisson process. A prompt is read as soon as there is room for its sequence, while all other
# sequences wait; then each step generates one token for every active sequence. A seed makes the result repeatable.
_CPU_SEQUENCES = (1, 2, 4, 8, 16)
_WARM_UP = 0.2  # share of the first requests to ignore: the replica is still filling up


@dataclass(frozen=True, slots=True)
class Latencies:
    """Percentiles of the time to the first token and of the whole answer, over ``requests``."""

    requests: int
    first_token_p50_s: float
    first_token_p95_s: float
    answer_p50_s: float
    answer_p95_s: float


def latencies(
    requests_per_second: float,
    *,
    prompt_s: float,
    output_tokens: int,
    step_s: Callable[[int], float],
    batch: int,
    requests: int = 1000,
    seed: int = 1,
) -> Latencies:
    """Simulates one replica. ``prompt_s``: seconds to read one prompt; ``step_s``: seconds of a step by the number of
    sequences; ``batch``: the maximum number of sequences. Beyond the replica's capacity, waits grow with
    ``requests``."""
    rate = positive("arrivals", requests_per_second, "requests/s")
    not_negative("prompt time", prompt_s, "s")
    tokens = whole("output tokens", output_tokens)
    chance = random.Random(seed)  # noqa: S311 - arrivals, not secrets
    arrivals: deque[float] = deque()
    arrival = 0.0
    for _ in range(whole("requests", requests, least=10)):
        arrival += chance.expovariate(rate)
        arrivals.append(arrival)
    now, steps = 0.0, 0.0  # steps: tokens generated per active sequence; a sequence ends at its start + tokens
    active: list[tuple[float, float]] = []
    first_tokens: list[float] = []
    answers: list[float] = []
    while arrivals or active:
        if arrivals and arrivals[0] <= now and len(active) < batch:
            arrived = arrivals.popleft()
            now += prompt_s
            heapq.heappush(active, (steps + tokens, arrived))
            first_tokens.append(now + step_s(len(active)) - arrived)
            continue
        if not active:
            now = max(now, arrivals[0])
            continue
        pace = step_s(len(active))
        ends, arrived = active[0]
        finished = now + (ends - steps) * pace
        if arrivals and len(active) < batch and now < arrivals[0] < finished:
            steps += (arrivals[0] - now) / pace
            now = arrivals[0]
            continue
        now, steps = finished, ends
        heapq.heappop(active)
        answers.append(now - arrived)
    skipped_count = int(requests * _WARM_UP)
    first_tokens, answers = sorted(first_tokens[skipped_count:]), sorted(answers[skipped_count:])
    return Latencies(
        len(first_tokens),
        _percentile(first_tokens, 0.5),
        _percentile(first_tokens, 0.95),
        _percentile(answers, 0.5),
        _percentile(answers, 0.95),
    )


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass(frozen=True, slots=True)
class MachinePrice:
    """A machine for rent: its GPUs of one kind, USD per hour for all of it, and the origin of that price."""

    gpus: int
    usd_per_hour: float
    origin: str = ""


@dataclass(frozen=True, slots=True)
class GpuHourPrices:
    """USD per GPU-hour of one accelerator by way of obtaining it; None without a price. ``machines``: those for rent on
    demand, ``reserved_machines`` with a commitment; if given, whole machines are paid."""

    owned: float | None = None
    reserved: float | None = None
    on_demand: float | None = None
    machines: tuple[MachinePrice, ...] = ()
    reserved_machines: tuple[MachinePrice, ...] = ()


@dataclass(frozen=True, slots=True)
class ServingOption:
    """One way to serve the traffic: accelerator, precision, size, speed, and the cost of a month (730 h).

    ``batch``: sequences a replica works on at once; ``time_to_first_token_s``: without waiting; ``time_per_token_s``:
    at full load. ``machines`` of ``gpus_per_machine`` are rented on demand (None where no price is known), at
    ``machine_usd_per_hour`` each, a price of ``price_origin``: place, source and age;
    ``monthly_usd_one_more``: with one machine more, so that losing one loses no capacity. ``first_token_p95_s`` and
    ``simulated_p95_s``: from simulated arrivals at the planned load, None where they were not simulated.
    ``measured_runs``: finished runs that measured the speed, at ``pace`` times the estimate; 0: estimated.
    """

    accelerator: str
    precision: Precision
    gpus: int
    monthly_usd_on_demand: EstimatedUsd | None
    machine_usd_per_hour: Usd | None
    p95_s: Seconds | None
    replicas: int
    gpus_per_replica: int
    machines: int | None
    gpus_per_machine: int | None
    price_origin: Annotated[str, HIDDEN]
    meets_latency: bool | None
    tokens_per_second_per_replica: Estimate
    batch: int
    monthly_usd_owned: EstimatedUsd | None
    monthly_usd_reserved: EstimatedUsd | None
    monthly_usd_one_more: EstimatedUsd | None
    time_to_first_token_s: Seconds
    time_per_token_s: Seconds
    prefill_share: Share
    first_token_p95_s: Seconds | None
    simulated_p95_s: Seconds | None
    measured_runs: int = 0
    pace: Estimate = 1.0

    @property
    def pace_text(self) -> str:
        """``H100: 0.62 of the estimated speed, measured by 3 finished runs of a model of this size``; empty where
        estimated."""
        if not self.measured_runs:
            return ""
        runs = f"{self.measured_runs} finished run{'s' * (self.measured_runs > 1)} of a model of this size"
        return f"{self.accelerator}: {number_text(self.pace)} of the estimated speed, measured by {runs}"

    @property
    def ranked_by_usd(self) -> float | None:
        """The monthly cost on demand; reserved, then owned, if unknown. Not the lowest of the three: a card that nobody
        rents out may be cheap because it is unsuitable.
        """
        known = (self.monthly_usd_on_demand, self.monthly_usd_reserved, self.monthly_usd_owned)
        return next((cost for cost in known if cost is not None), None)


def cpu_machine(vcpus: float, memory_gib: float, assumptions: Assumptions) -> Accelerator:
    """A machine without accelerators as a candidate: bandwidth and compute in proportion to its vCPUs."""
    return Accelerator(
        name=f"{vcpus:g} vCPUs", vendor="cpu", memory_gb=memory_gib * GIB / GB, memory_gib=memory_gib,
        bandwidth_gb_s=vcpus * assumptions.cpu_gb_s, tflops_bf16=vcpus * assumptions.cpu_tflops,
        form_factor="cpu", year=2023, maturity=5, source="assumptions cpu_gb_s, cpu_tflops",
    )  # fmt: skip


def served_model(model: Subject, precision: Precision, traffic: Assumptions) -> ServedModel:
    """The model with such weights and the requests of that traffic."""
    return ServedModel(
        model.parameters, model.active, model.shape or shape_for(model.parameters)[0], precision,
        traffic.prompt_tokens, traffic.tokens_per_request, cached_share=traffic.prefix_cache,
        context=traffic.context or 0,
    )  # fmt: skip


def options(
    model: Subject,
    accelerators: Iterable[tuple[Accelerator, GpuHourPrices]],
    assumptions: Assumptions,
    precisions: Sequence[Precision] = (Precision.FP16, Precision.FP8, Precision.INT8, Precision.INT4),
) -> tuple[ServingOption, ...]:
    """Every accelerator and precision that holds the model, each in its cheapest size of a replica.

    ``batch`` of the assumptions: sequences at once; None for as many as the memory next to the weights holds.
    ``context``: tokens that each may grow to, if more than prompt and output. The cheapest on demand that meets the
    latency first, those that are not for rent on demand last. Speeds are estimates: measure before you buy.
    """
    results = []
    for card, prices in accelerators:
        for precision in precisions:
            if precision is Precision.FP8 and card.tflops_fp8 is None:
                continue
            served = served_model(model, precision, assumptions)
            measured, runs = with_measured_pace(served, card, assumptions)
            sizes = [_option(served, card, prices, speed, measured) for speed in _speeds(served, card, measured)]
            if sizes:
                best = min(sizes, key=_rank)
                results.append(replace(best, measured_runs=runs, pace=measured.serving_pace / assumptions.serving_pace))
    return tuple(sorted(results, key=_rank))


def with_simulation(
    option: ServingOption, model: Subject, card: Accelerator, prices: GpuHourPrices, assumptions: Assumptions
) -> ServingOption:
    """The option with latencies of simulated arrivals at its share of the traffic; ``meets_latency`` follows them.

    If the simulated p95 misses the traffic's, replicas are added until it is met, with their cost at ``prices``; none
    are added if even a request that never waits is too slow.
    """
    served = served_model(model, option.precision, assumptions)
    traffic, runs = with_measured_pace(served, card, assumptions)
    output = max(1, round(traffic.tokens_per_request))
    per_replica = option.gpus_per_replica or 1  # a CPU machine has no GPU
    prompt = prompt_seconds(served, card, per_replica, traffic)

    def step(sequences: int) -> float:
        return step_seconds(served, card, per_replica, sequences, traffic)

    def simulate(replicas: int) -> Latencies:
        rate = (traffic.requests_per_minute or 0.0) / 60 / replicas
        return latencies(rate, prompt_s=prompt, output_tokens=output, step_s=step, batch=option.batch)

    replicas, latency = option.replicas, simulate(option.replicas)
    limit = traffic.p95_s
    if limit is not None and latency.answer_p95_s > limit and prompt + output * step(1) < limit:
        too_few, replicas = _enough_replicas(lambda count: simulate(count).answer_p95_s <= limit, option.replicas)
        while replicas - too_few > 1:
            middle = (too_few + replicas) // 2
            if simulate(middle).answer_p95_s <= limit:
                replicas = middle
            else:
                too_few = middle
        latency = simulate(replicas)
        speed = replica_speed(served, card, per_replica, option.batch, traffic)
        if speed is not None:
            larger = _option(served, card, prices, speed, replace(traffic, least_replicas=replicas))
            option = replace(larger, measured_runs=runs, pace=option.pace)
    return replace(
        option,
        first_token_p95_s=latency.first_token_p95_s,
        simulated_p95_s=latency.answer_p95_s,
        meets_latency=None if limit is None else latency.answer_p95_s <= limit,
    )


def with_simulated_best(
    candidates: Sequence[ServingOption], simulate: Callable[[ServingOption], ServingOption], limit: int = 12
) -> tuple[ServingOption, ...]:
    """The options in their order, the first with the latencies of simulated arrivals: with the replicas that these
    require, another option may be cheaper, and is simulated next. At most ``limit`` are simulated; if cheaper ones
    remain, the best of those comes first."""
    ranked = list(candidates)
    for _ in range(limit):
        if not ranked or ranked[0].simulated_p95_s is not None:
            break
        ranked[0] = simulate(ranked[0])
        ranked.sort(key=_rank)
    best = next((option for option in ranked if option.simulated_p95_s is not None), None)
    return tuple(ranked) if best is None else (best, *(option for option in ranked if option is not best))


def cheapest_mix(candidates: Iterable[ServingOption], required_tokens_per_second: float) -> tuple[float, str] | None:
    """USD a month of the cheapest two kinds of rented machines that carry the traffic together, and what they are:
    of one precision, so that all answers are alike. None without such a pair."""
    mixes = []
    for large, small in permutations(candidates, 2):
        per_machine = [
            (option.gpus_per_machine or 0) // (option.gpus_per_replica or 1) * option.tokens_per_second_per_replica
            for option in (large, small)
        ]
        if not all(per_machine) or large.accelerator == small.accelerator or large.precision is not small.precision:
            continue
        whole, rest = divmod(required_tokens_per_second, per_machine[0])
        numbers = ((large, int(whole)), (small, ceil(rest / per_machine[1])))
        usd = sum(n * (option.monthly_usd_on_demand or 0.0) / (option.machines or 1) for option, n in numbers)
        text = " and ".join(f"{n} × {option.accelerator}:{option.gpus_per_machine}" for option, n in numbers)
        mixes += [(usd, f"{text} with {large.precision} weights")] * (whole > 0 and rest > 0)
    return min(mixes, default=None)


def _enough_replicas(is_enough: Callable[[int], bool], replicas: int) -> tuple[int, int]:
    """A number of replicas that is too small, and a larger one that is sufficient, or 64 times the first."""
    limit = min(64 * replicas, MAX_REPLICAS)
    while replicas < limit:
        larger = min(max(replicas + 1, replicas * 3 // 2), limit)
        if is_enough(larger):
            return replicas, larger
        replicas = larger
    return replicas, replicas


def _speeds(model: ServedModel, card: Accelerator, assumptions: Assumptions) -> Iterator[ReplicaSpeed]:
    """The smallest replica that holds the model and its multiples within a machine, where they hold the ``batch``; with
    a limit of the latency also at half as many sequences and so on, each of which is answered faster. With a stated
    speed only the replica that it is of."""
    is_stated = assumptions.replica_tokens_per_second is not None
    batch, smaller = assumptions.batch, assumptions.p95_s is not None and not is_stated
    use = ModelUse(model.parameters, Method.INFERENCE, model.precision, context=round(model.room), shape=model.shape)
    fitting = find_fits(estimate(use, assumptions=assumptions), [card], assumptions=assumptions)
    if not fitting or fitting[0].gpus > assumptions.gpus_per_node:
        return
    gpus = fitting[0].gpus
    if card.is_cpu:  # the fewest at once that carry the traffic come first: each more slows all of them
        sizes = (batch,) if batch else _CPU_SEQUENCES
        yield from filter(None, (replica_speed(model, card, 1, size, assumptions) for size in sizes))
        return
    if is_stated:
        stated = replica_speed(model, card, assumptions.gpus_per_replica, batch, assumptions)
        if stated is not None and assumptions.gpus_per_replica >= gpus:
            yield stated
        return
    max_gpus = 1 if card.consumer else assumptions.gpus_per_node
    while gpus <= max(max_gpus, fitting[0].gpus):
        speed = replica_speed(model, card, gpus, batch, assumptions)
        while speed is not None:
            yield speed
            fewer = speed.batch // 2
            is_next = smaller and batch is None and fewer
            speed = replica_speed(model, card, gpus, fewer, assumptions) if is_next else None
        gpus *= 2


def _option(
    model: ServedModel, card: Accelerator, prices: GpuHourPrices, speed: ReplicaSpeed, traffic: Assumptions
) -> ServingOption:
    sizing = plan(
        traffic,
        tokens_per_second_per_replica=speed.tokens_per_second,
        gpus_per_replica=speed.gpus,
        batch=speed.batch,
    )
    rented = _machines(prices.machines, sizing.replicas, speed.gpus, traffic.spare_machines)
    reserved = _machines(prices.reserved_machines, sizing.replicas, speed.gpus, traffic.spare_machines)
    monthly = rented and rented[0]
    if not prices.machines:
        monthly = _monthly(prices.on_demand, sizing.gpus)
    return ServingOption(
        accelerator=card.name,
        precision=model.precision,
        gpus_per_replica=0 if card.is_cpu else speed.gpus,
        tokens_per_second_per_replica=speed.tokens_per_second,
        batch=speed.batch,
        time_to_first_token_s=speed.time_to_first_token_s,
        time_per_token_s=speed.time_per_token_s,
        prefill_share=speed.prefill_share,
        replicas=sizing.replicas,
        gpus=0 if card.is_cpu else sizing.gpus,
        machines=rented and rented[1],
        gpus_per_machine=rented and (0 if card.is_cpu else rented[2].gpus),
        p95_s=sizing.p95_s,
        first_token_p95_s=None,
        simulated_p95_s=None,
        meets_latency=sizing.meets_latency,
        monthly_usd_owned=_monthly(prices.owned, sizing.gpus),
        monthly_usd_reserved=reserved[0] if reserved else _monthly(prices.reserved, sizing.gpus),
        monthly_usd_on_demand=monthly,
        machine_usd_per_hour=rented and rented[2].usd_per_hour,
        price_origin=rented[2].origin if rented else "",
        monthly_usd_one_more=rented and rented[0] + rented[2].usd_per_hour * HOURS_PER_MONTH,
    )


def _machines(
    machines: Iterable[MachinePrice], replicas: int, gpus: int, spare: int
) -> tuple[float, int, MachinePrice] | None:
    """USD a month, their number, and the machine: the cheapest that hold whole replicas, spare ones included."""
    rentals = []
    for machine in machines:
        if machine.gpus >= gpus:
            number = ceil(replicas / (machine.gpus // gpus)) + spare
            rentals.append((number * machine.usd_per_hour * HOURS_PER_MONTH, number, machine))
    return min(rentals, key=lambda rental: (rental[0], rental[1]), default=None)


def _rank(option: ServingOption) -> tuple[bool, bool, float, int]:
    is_late = option.meets_latency is False or option.replicas >= MAX_REPLICAS
    return is_late, option.monthly_usd_on_demand is None, option.ranked_by_usd or 0.0, option.gpus


def _monthly(usd_per_gpu_hour: float | None, gpus: int) -> float | None:
    return None if usd_per_gpu_hour is None else usd_per_gpu_hour * gpus * HOURS_PER_MONTH
