"""Latency of a replica under random arrivals, by simulation. Times seconds.

Requests arrive as a Poisson process. A prompt is read as soon as there is room for its sequence, while all other
sequences wait; then each step generates one token for every active sequence. A seed makes the result repeatable.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from broker.economics.units import not_negative, positive, whole

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
    at = 0.0
    for _ in range(whole("requests", requests, least=10)):
        at += chance.expovariate(rate)
        arrivals.append(at)
    now, steps = 0.0, 0.0  # steps: tokens generated per active sequence; a sequence ends at its start + tokens
    at_work: list[tuple[float, float]] = []
    first: list[float] = []
    whole_answer: list[float] = []
    while arrivals or at_work:
        if arrivals and arrivals[0] <= now and len(at_work) < batch:
            arrived = arrivals.popleft()
            now += prompt_s
            heapq.heappush(at_work, (steps + tokens, arrived))
            first.append(now + step_s(len(at_work)) - arrived)
            continue
        if not at_work:
            now = max(now, arrivals[0])
            continue
        pace = step_s(len(at_work))
        ends, arrived = at_work[0]
        finished = now + (ends - steps) * pace
        if arrivals and len(at_work) < batch and now < arrivals[0] < finished:
            steps += (arrivals[0] - now) / pace
            now = arrivals[0]
            continue
        now, steps = finished, ends
        heapq.heappop(at_work)
        whole_answer.append(now - arrived)
    kept = int(requests * _WARM_UP)
    first, whole_answer = sorted(first[kept:]), sorted(whole_answer[kept:])
    return Latencies(
        len(first), _at(first, 0.5), _at(first, 0.95), _at(whole_answer, 0.5), _at(whole_answer, 0.95)
    )  # fmt: skip


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
