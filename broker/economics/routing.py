"""Model routing: the cheapest sufficient model for each kind of task, and the saving over one model for all (USD)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from broker.core.errors import InvalidInput
from broker.economics.units import not_negative, positive, share, whole


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
class Routing:
    """The tier of each class, each tier's share of tasks, and the saving over the most expensive tier for all.
    ``unserved``: classes that no tier satisfies; excluded from all figures.
    """

    routes: tuple[tuple[str, str], ...]
    shares: tuple[tuple[str, float], ...]
    cost_usd: float
    largest_only_usd: float
    saving: float
    unserved: tuple[str, ...]


def route(tiers: Sequence[Tier], tasks: Sequence[TaskClass]) -> Routing:
    """Sends each class to the cheapest tier that meets its quality and latency.

    Compared with sending all tasks to the tier with the highest quality. Re-evaluate when tiers, prices or measured
    quality change. Raises InvalidInput without tiers or tasks.
    """
    if not tiers or not tasks:
        raise InvalidInput("expected at least one model tier and one class of tasks")
    best = max(tiers, key=lambda tier: (tier.quality, -tier.usd_per_task))
    routes, unserved, counts = [], [], dict.fromkeys((tier.name for tier in tiers), 0)
    cost = largest = 0.0
    for task in tasks:
        whole(f"{task.name}: tasks", task.count, most=10**12)
        fitting = [t for t in tiers if t.quality >= task.quality and t.latency_s <= task.latency_s]
        if not fitting:
            unserved.append(task.name)
            continue
        chosen = min(fitting, key=lambda tier: (tier.usd_per_task, -tier.quality))
        routes.append((task.name, chosen.name))
        counts[chosen.name] += task.count
        cost += task.count * chosen.usd_per_task
        largest += task.count * best.usd_per_task
    served = sum(counts.values())
    return Routing(
        routes=tuple(routes),
        shares=tuple((name, count / served if served else 0.0) for name, count in counts.items()),
        cost_usd=cost,
        largest_only_usd=largest,
        saving=1 - cost / largest if largest else 0.0,
        unserved=tuple(unserved),
    )
