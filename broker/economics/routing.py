"""Model routing: the cheapest sufficient model for each kind of task, and the saving over one model for all (USD)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from broker.core.errors import InvalidInput
from broker.economics.figures import Figure, Share, Usd
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
        fitting = [t for t in tiers if t.quality >= task.quality and t.latency_s <= task.latency_s]
        if not fitting:
            unserved.append(task.name)
            continue
        chosen = min(fitting, key=lambda tier: (tier.usd_per_task, -tier.quality))
        routes[chosen.name].append(task)
        cost += task.count * chosen.usd_per_task
        largest += task.count * best.usd_per_task
    served = sum(task.count for own in routes.values() for task in own) or 1
    shares = {name: sum(task.count for task in own) / served for name, own in routes.items()}
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
