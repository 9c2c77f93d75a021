"""The values a strategy works on. Seconds and USD per hour throughout; ``elapsed`` counts from the job's start.

A *tick* is the time between two decisions. A *changeover* is boot plus restore: billed, without progress. A *pool* is
one place where spot capacity of the right kind may be had (provider, zone, type).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

EPSILON = 1e-6
"""Tolerance in seconds. The rounding errors of float sums over weeks are far smaller."""


class Mode(StrEnum):
    """The capacity that the job pays for."""

    IDLE = "idle"
    SPOT = "spot"
    ON_DEMAND = "on_demand"


@dataclass(frozen=True, slots=True)
class StrategyTask:
    """The job as a strategy sees it: ``work`` on the reference machine, ``deadline`` after its start, ``changeover``
    for every start or move, and ``tick``, how long a decision binds. All in seconds."""

    work: float
    deadline: float
    changeover: float
    tick: float


@dataclass(frozen=True, slots=True)
class Situation:
    """All that is known at the start of a tick.

    ``spot``: price by pool with capacity now; other pools have none. A job whose machine was lost is idle.
    ``changeover_left``: seconds until the current machine makes progress.
    """

    elapsed: float
    work_left: float
    mode: Mode
    pool: str | None
    changeover_left: float
    spot: Mapping[str, float]
    on_demand_price: float


@dataclass(frozen=True, slots=True)
class StrategyDecision:
    """The action until the next tick. ``pool`` is set for spot only. ``why``: for display and decision logs."""

    mode: Mode
    pool: str | None = None
    why: str = ""


class StrategySession(Protocol):
    """A strategy for one job, called once per tick, in order; it may keep state."""

    def decide(self, now: Situation) -> StrategyDecision: ...


def slack(task: StrategyTask, now: Situation) -> float:
    """Slack in seconds: time left minus work left, R − C."""
    return task.deadline - now.elapsed - now.work_left


def cheapest(spot: Mapping[str, float]) -> str | None:
    """The available pool with the lowest price; ties go to the first by name, so that logs can be compared."""
    return min(spot, key=lambda pool: (spot[pool], pool), default=None)
