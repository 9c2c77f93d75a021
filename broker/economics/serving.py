"""Serving: from traffic to replicas and GPUs, with latency checked; and the savings of scale-to-zero.

Amounts USD, times seconds unless a name says otherwise. Queueing: Erlang C (M/M/c), a conservative model for random
arrivals that share slots.

Model routing: the cheapest sufficient model for each kind of task, and the saving over one model for all (USD).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from broker.core.errors import InvalidInput
from broker.economics.assumptions import Assumptions
from broker.economics.figures import Figure, Seconds, Share, Usd
from broker.economics.units import HOURS_PER_MONTH, ceil, not_negative, positive, share, whole

MAX_REPLICAS = 100_000


def demand_tokens_per_second(traffic: Assumptions) -> float:
    """Tokens generated per second at the peak, without headroom."""
    return (traffic.requests_per_minute or 0.0) * traffic.tokens_per_request / 60


def sequences_within_limit(traffic: Assumptions) -> int | None:
    """The most requests that a replica of the stated speed works on at once while each is answered within the p95, at
    least 1 and at most what an engine schedules; None without a stated speed or a limit, or where the ``batch`` is
    stated."""
    speed, limit = traffic.replica_tokens_per_second, traffic.p95_s
    if speed is None or limit is None or traffic.batch is not None:
        return None
    return max(1, min(int(speed * limit / traffic.tokens_per_request + 1e-9), traffic.serving_most_sequences))


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """Replicas and GPUs for a traffic. ``required_tokens_per_second`` includes the headroom. ``p95_s`` is estimated
    when the speed of one request is known; ``meets_latency`` None when there is nothing to check."""

    demand_tokens_per_second: Figure
    required_tokens_per_second: Figure
    replicas: int
    gpus: int
    tokens_per_second_per_request: Figure | None
    p95_s: Seconds | None
    meets_latency: bool | None


def plan(
    traffic: Assumptions, *, tokens_per_second_per_replica: float, gpus_per_replica: int = 1, batch: int | None = None
) -> ServingPlan:
    """Replicas = required tokens/s ÷ tokens/s of a replica, rounded up, and more if the p95 needs them.

    ``batch``: how many requests a replica works on at once, at its full speed; each then gets an equal part of the
    speed. Without it latency is not checked. A p95 that no number of replicas reaches (one request alone is too slow)
    comes back as ``meets_latency`` False.
    """
    limit, demand = traffic.p95_s, demand_tokens_per_second(traffic)
    rate = positive("requests per minute", traffic.requests_per_minute or 0.0) / 60
    speed = positive("throughput of a replica", tokens_per_second_per_replica, "tokens/s")
    required = demand * (1 + traffic.serving_headroom)
    replicas = max(traffic.least_replicas, ceil(required / speed))
    whole("replicas", replicas, most=MAX_REPLICAS)
    p95 = is_met = None
    if batch is not None:
        service = traffic.tokens_per_request * whole("batch", batch) / speed
        p95 = p95_seconds(rate, service, replicas * batch)
        if limit is not None:
            while p95 > limit and service <= limit and replicas < MAX_REPLICAS:
                replicas += 1
                p95 = p95_seconds(rate, service, replicas * batch)
            is_met = p95 <= limit
    return ServingPlan(
        demand_tokens_per_second=demand,
        required_tokens_per_second=required,
        replicas=replicas,
        gpus=replicas * gpus_per_replica,
        tokens_per_second_per_request=None if limit is None else traffic.tokens_per_request / limit,
        p95_s=p95,
        meets_latency=is_met,
    )


def p95_seconds(requests_per_second: float, service_s: float, slots: int) -> float:
    """Service time plus the wait that 95 of 100 requests stay below, with ``slots`` requests at work at once.

    Infinite when the slots cannot keep up. The wait is exponential beyond the probability of waiting at all (Erlang
    C): P(wait > t) = C · exp(−(slots ÷ service − arrivals) · t).
    """
    positive("arrivals", requests_per_second, "requests/s")
    positive("service time", service_s, "s")
    load = requests_per_second * service_s
    if load >= whole("slots", slots, most=10**9):
        return math.inf
    waits = erlang_c(load, slots)
    if waits <= 0.05:
        return service_s
    return service_s + math.log(waits / 0.05) / (slots / service_s - requests_per_second)


def erlang_c(load: float, slots: int) -> float:
    """The probability that a request must wait, for an offered ``load`` (in slots) below ``slots``."""
    # Erlang B by its recursion, which neither overflows nor loses digits. It forgets its start: that of 12 standard
    # deviations below the load is as good as the first slot.
    first = max(0, int(load - 12 * math.sqrt(load)))
    blocked = 1 - first / load if first else 1.0
    for slot in range(first + 1, slots + 1):
        blocked = load * blocked / (slot + load * blocked)
        if blocked < 1e-300:
            return 0.0
    return blocked / (1 - load / slots * (1 - blocked))


@dataclass(frozen=True, slots=True)
class ScaleToZero:
    """The cost of a month (730 h) always warm, and of one with scale-to-zero. ``delayed_share`` of the requests
    wait for a cold start of ``cold_start_s``."""

    warm_usd_per_month: Usd
    scaled_usd_per_month: Usd
    saving_usd_per_month: Usd
    delayed_share: Share
    cold_start_s: Seconds

    @property
    def title(self) -> str:
        return f"Scale to zero: {'pays' if self.saving_usd_per_month > 0 else 'does not pay'}"


def scale_to_zero(usd_per_hour: float, replicas: int, assumptions: Assumptions) -> ScaleToZero:
    """The savings of scale-to-zero at the ``idle_share`` of the assumptions. ``usd_per_hour``: of one replica.

    Each cold start costs money (the machine loads the model) and delays its request. ``warm_replicas`` of the
    ``replicas`` never sleep; with at least one, no request waits.
    """
    rate, idle = positive("price", usd_per_hour, "USD per hour"), assumptions.idle_share or 0.0
    start, starts = assumptions.cold_start_s, assumptions.cold_starts_per_day
    requests = (assumptions.requests_per_minute or 0.0) * 1440 * max(1 - idle, 1e-6)
    always_warm = whole("warm replicas", assumptions.warm_replicas, least=0, most=replicas)
    warm = replicas * rate * HOURS_PER_MONTH
    starting = min(idle * 24, starts * start / 3600) / 24
    scaled = (always_warm + (replicas - always_warm) * (1 - idle + starting)) * rate * HOURS_PER_MONTH
    delayed = 0.0 if always_warm else min(1.0, starts / positive("requests per day", requests))
    return ScaleToZero(warm, scaled, warm - scaled, delayed, start)


@dataclass(frozen=True, slots=True)
class Tier:
    """A model: ``quality`` (0 to 1, measured on the user's own tasks), latency, and USD per task."""

    name: str
    quality: float
    latency_s: float
    usd_per_task: float

    def __post_init__(self) -> None:
        share(f"{self.name}: quality", self.quality)
        positive(f"{self.name}: latency", self.latency_s, "s")
        not_negative(f"{self.name}: cost", self.usd_per_task, "USD")


@dataclass(frozen=True, slots=True)
class TaskClass:
    """Tasks of one kind: number, required quality and latency."""

    name: str
    count: int
    quality: float
    latency_s: float = math.inf


@dataclass(frozen=True, slots=True)
class RoutedTier:
    """A model, its quality, its share of all tasks, and the kinds of tasks that it gets."""

    model: str
    quality: Figure
    share_of_tasks: Share
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Routing:
    """The tiers with their tasks, and the ``saving`` over the best tier for all. ``unserved``: classes that no tier
    satisfies; excluded from all figures."""

    cost_usd: Usd
    largest_only_usd: Usd
    saving: Share
    tiers: tuple[RoutedTier, ...]
    unserved: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"The smallest sufficient model: saves {self.saving:.0%} over the best model for all tasks"


def route(tiers: Sequence[Tier], tasks: Sequence[TaskClass]) -> Routing:
    """Sends each class to the cheapest tier that meets its quality and latency.

    Compared with sending all tasks to the tier with the highest quality. Re-evaluate when tiers, prices or measured
    quality change. Raises InvalidInput without tiers or tasks.
    """
    if not tiers or not tasks:
        raise InvalidInput("expected at least one model tier and one class of tasks")
    best = max(tiers, key=lambda tier: (tier.quality, -tier.usd_per_task))
    routes: dict[str, list[TaskClass]] = {tier.name: [] for tier in tiers}
    unserved = []
    cost = largest = 0.0
    for task in tasks:
        whole(f"{task.name}: tasks", task.count, most=10**12)
        sufficient = [t for t in tiers if t.quality >= task.quality and t.latency_s <= task.latency_s]
        if not sufficient:
            unserved.append(task.name)
            continue
        cheapest = min(sufficient, key=lambda tier: (tier.usd_per_task, -tier.quality))
        routes[cheapest.name].append(task)
        cost += task.count * cheapest.usd_per_task
        largest += task.count * best.usd_per_task
    total = sum(task.count for routed in routes.values() for task in routed) or 1
    shares = {name: sum(task.count for task in routed) / total for name, routed in routes.items()}
    return Routing(
        cost_usd=cost,
        largest_only_usd=largest,
        saving=1 - cost / largest if largest else 0.0,
        tiers=tuple(
            RoutedTier(tier.name, tier.quality, shares[tier.name], tuple(task.name for task in routes[tier.name]))
            for tier in tiers
        ),
        unserved=tuple(unserved),
    )
