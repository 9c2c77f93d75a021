"""Serving: from traffic to replicas and GPUs, with latency checked; and the savings of scale-to-zero.

Amounts USD, times seconds unless a name says otherwise. Queueing: Erlang C (M/M/c), a conservative model for random
arrivals that share slots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.units import HOURS_PER_MONTH, ceil, not_negative, positive, share, whole

MOST_REPLICAS = 100_000


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests per minute, tokens generated for each, and the spare share kept on top (0.2 is 20 %).

    ``p95_s``: the time in which 95 of 100 requests must be answered, if there is one. ``prompt_tokens``: of each
    request, beside those generated, ``cached_share`` of them in a prefix cache."""

    requests_per_minute: float
    tokens_per_request: float
    headroom: float
    p95_s: float | None = None
    prompt_tokens: float = 0.0
    cached_share: float = 0.0

    def __post_init__(self) -> None:
        positive("requests per minute", self.requests_per_minute)
        positive("tokens per request", self.tokens_per_request)
        not_negative("headroom", self.headroom, most=10)
        if self.p95_s is not None:
            positive("p95 latency", self.p95_s, "s")

    @property
    def tokens_per_second(self) -> float:
        """Demand without headroom, tokens/s."""
        return self.requests_per_minute * self.tokens_per_request / 60

    @property
    def tokens_per_second_per_request(self) -> float | None:
        """The required speed of each answer, tokens/s."""
        return None if self.p95_s is None else self.tokens_per_request / self.p95_s


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """Replicas and GPUs for a traffic. ``required_tokens_per_second`` includes the headroom. ``p95_s`` is estimated
    when the speed of one request is known; ``meets_latency`` None when there is nothing to check."""

    demand_tokens_per_second: float
    required_tokens_per_second: float
    replicas: int
    gpus: int
    tokens_per_second_per_request: float | None
    p95_s: float | None
    meets_latency: bool | None


def plan(
    traffic: Traffic,
    *,
    tokens_per_second_per_replica: float,
    gpus_per_replica: int = 1,
    batch: int | None = None,
    least_replicas: int = 1,
) -> ServingPlan:
    """Replicas = required tokens/s ÷ tokens/s of a replica, rounded up, and more if the p95 needs them.

    ``batch``: how many requests a replica works on at once, at its full speed; each then gets an equal part of the
    speed. Without it latency is not checked. A p95 that no number of replicas reaches (one request alone is too slow)
    comes back as ``meets_latency`` False.
    """
    speed = positive("throughput of a replica", tokens_per_second_per_replica, "tokens/s")
    required = traffic.tokens_per_second * (1 + traffic.headroom)
    replicas = max(whole("minimum replicas", least_replicas), ceil(required / speed))
    whole("gpus per replica", gpus_per_replica)
    whole("replicas", replicas, most=MOST_REPLICAS)
    p95 = meets = None
    if batch is not None:
        service = traffic.tokens_per_request * whole("batch", batch) / speed
        rate = traffic.requests_per_minute / 60
        p95 = p95_seconds(rate, service, replicas * batch)
        if traffic.p95_s is not None:
            while p95 > traffic.p95_s and service <= traffic.p95_s and replicas < MOST_REPLICAS:
                replicas += 1
                p95 = p95_seconds(rate, service, replicas * batch)
            meets = p95 <= traffic.p95_s
    return ServingPlan(
        demand_tokens_per_second=traffic.tokens_per_second,
        required_tokens_per_second=required,
        replicas=replicas,
        gpus=replicas * gpus_per_replica,
        tokens_per_second_per_request=traffic.tokens_per_second_per_request,
        p95_s=p95,
        meets_latency=meets,
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
    """A month (730 h) kept warm against one that sleeps when idle. ``delayed_share`` of the requests wait for a cold
    start of ``cold_start_s``."""

    warm_usd_per_month: float
    scaled_usd_per_month: float
    saving_usd_per_month: float
    delayed_share: float
    cold_start_s: float


def scale_to_zero(
    *,
    usd_per_hour: float,
    idle_share: float,
    cold_starts_per_day: float,
    requests_per_day: float,
    cold_start_s: float | None = None,
    warm_replicas: int = 0,
    replicas: int = 1,
    rules: Assumptions = DEFAULTS,
) -> ScaleToZero:
    """The savings of scale-to-zero. ``usd_per_hour``: of one replica; ``idle_share``: of the hours without requests.

    Each cold start costs money (the machine loads the model, 30-120 s) and delays its request. ``warm_replicas`` of the
    ``replicas`` never sleep; with at least one, no request waits.
    """
    rate = positive("price", usd_per_hour, "USD per hour")
    idle = share("idle share", idle_share)
    start = positive("cold start", rules.cold_start_s if cold_start_s is None else cold_start_s, "s")
    starts = not_negative("cold starts per day", cold_starts_per_day, most=86_400)
    requests = positive("requests per day", requests_per_day)
    asleep = whole("replicas", replicas) - whole("warm replicas", warm_replicas, least=0, most=replicas)
    warm = replicas * rate * HOURS_PER_MONTH
    starting = min(idle * 24, starts * start / 3600) / 24
    scaled = (warm_replicas + asleep * (1 - idle + starting)) * rate * HOURS_PER_MONTH
    delayed = 0.0 if warm_replicas else min(1.0, starts / requests)
    return ScaleToZero(warm, scaled, warm - scaled, delayed, start)
