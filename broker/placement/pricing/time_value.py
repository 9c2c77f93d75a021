"""The value of time for jobs without a deadline. Pure.

With a `value_of_time` v (USD per hour, from the job or a policy), placements rank by cost + v · time to finish. So a
faster machine may be worth its price, unavailable spot capacity may be worth waiting for, and a running job may move to
a better placement. Without a value of time, a job takes the cheapest placement available now and keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from broker.core.job.jobs import Job
from broker.core.job.placements import Placement, Plan
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.figures import about, hours, hours_of
from broker.core.values.money import Money
from broker.core.values.units import print_money

RENTED = (CapacityType.ON_DEMAND, CapacityType.SPOT)
WORTH_MOVING = 2.5
"""A voluntary move must save this multiple of its cost: the saving is expected, the cost certain."""


@dataclass(frozen=True, slots=True)
class WaitForPlacement:
    """Wait for ``placement``, which is unavailable now. ``why``: for the job's events."""

    placement: Placement
    why: str


class Valuing(Protocol):
    """What gives a default `value_of_time`: the conditions of a plan, or the policies' defaults."""

    @property
    def value_of_time(self) -> Money | None: ...


def value_of_time(job: Job, defaults: Valuing) -> Money:
    """USD per hour that the job finishes earlier; zero for a job with a deadline."""
    if job.deadline is not None:
        return Money.ZERO
    value = defaults.value_of_time if job.value_of_time is None else job.value_of_time
    return value or Money.ZERO


def worth_of_time(placement: Placement, value: Money) -> Money:
    """USD: the value of the time to the placement's finish, or of a useful hour if the work is unknown."""
    if placement.duration is not None:
        return Money(round(value.micros * hours_of(placement.duration)))
    return Money(round(value.micros / (placement.throughput * placement.useful_fraction)))


def worth_waiting(
    here: Placement | None,
    gone: Iterable[Placement],
    away: Callable[[Offer], float],
    value: Money,
    waited: timedelta,
) -> WaitForPlacement | None:
    """Whether to wait for one of ``gone``, unavailable capacity, rather than start on ``here``.

    ``away``: hours until lost capacity returns, on average. Long absences tend to last: the expectation is never less
    than ``waited``, so a futile wait ends.
    """
    if not value or here is None or here.duration is None:
        return None
    now = _weighed(here, value)
    best: tuple[int, str, float, Placement] | None = None
    for placement in gone:
        if placement.duration is None:
            continue
        until = max(away(placement.offer), hours_of(waited))
        then = _weighed(placement, value) + round(value.micros * until)
        if then < now and (best is None or (then, placement.offer.id) < best[:2]):
            best = then, placement.offer.id, until, placement
    if best is None:
        return None
    then, _, until, placement = best
    why = (
        f"spot capacity in {placement.offer.pool} is expected back in {hours(until)}: at {print_money(value)} an hour"
        f" that is worth waiting for, by {about(Money(now - then))}"
    )
    return WaitForPlacement(placement, why)


def better_place(
    here: Placement, others: Iterable[Placement], left: float, changeover: float, value: Money
) -> Placement | None:
    """A better placement for ``left`` hours of work (on the reference machine), if the saving until the work is done,
    or that machine is lost, is several times the cost of the changeover.
    """
    if not value:
        return None
    best: tuple[float, str, Placement] | None = None
    for placement in others:
        if placement.offer.pool == here.offer.pool:
            continue
        lost = placement.interruptions_per_hour
        useful = placement.throughput * placement.useful_fraction
        work = min(left, useful / lost) if lost > 0 else left
        saving = (_per_work(here, value) - _per_work(placement, value)) * work
        costs = (placement.rate.micros + value.micros) * changeover
        gain = saving - WORTH_MOVING * costs
        if gain > 0 and (best is None or (-gain, placement.offer.id) < best[:2]):
            best = -gain, placement.offer.id, placement
    return best[2] if best is not None else None


def _weighed(placement: Placement, value: Money) -> int:
    return placement.expected_cost.micros + worth_of_time(placement, value).micros


def _per_work(placement: Placement, value: Money) -> float:
    """Micro-dollars per hour of work on the reference machine, including the value of time."""
    return (placement.rate.micros + value.micros) / (placement.throughput * placement.useful_fraction)


def start_is_open(job: Job, plan: Plan, offers: Iterable[Offer], policys_value: Money | None) -> bool:
    """Whether a strategy chooses the place and time of the start: the best placement would be rented, some of
    ``offers`` (all there are) are interruptible, and either the known work leaves slack before the deadline, or time
    has a value.
    """
    best = plan.best
    if best is None or best.duration is None or best.offer.capacity_type not in RENTED:
        return False
    if not any(offer.capacity_type is CapacityType.SPOT for offer in offers):
        return False
    if plan.deadline is None:
        return bool(policys_value if job.value_of_time is None else job.value_of_time)
    return any(p.offer.capacity_type is not CapacityType.SPOT for p in plan.placements)
