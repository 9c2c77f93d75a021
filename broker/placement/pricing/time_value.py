"""The value of time for jobs without a deadline. Pure.

With a `value_of_time` v (USD per hour, from the job or a policy), placements rank by cost + v · time to finish. So a
faster machine may be worth its price, unavailable spot capacity may be worth waiting for, and a running job may move to
a better placement. Without a value of time, a job takes the cheapest placement available now and keeps it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from broker.core.job.jobs import Job
from broker.core.job.placements import Placement, Plan
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.figures import estimate, hours, hours_of
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


class HasValueOfTime(Protocol):
    """What gives a default `value_of_time`: the conditions of a plan, or the policies' defaults."""

    @property
    def value_of_time(self) -> Money | None: ...


def value_of_time(job: Job, defaults: HasValueOfTime) -> Money:
    """USD per hour that the job finishes earlier; zero for a job with a deadline."""
    if job.deadline is not None:
        return Money.ZERO
    value = defaults.value_of_time if job.value_of_time is None else job.value_of_time
    return value or Money.ZERO


def time_cost(placement: Placement, value: Money) -> Money:
    """USD: the value of the time to the placement's finish, or of a useful hour if the work is unknown."""
    if placement.duration is not None:
        return Money(round(value.micros * hours_of(placement.duration)))
    return Money(round(value.micros / (placement.throughput * placement.useful_fraction)))


def find_spot_wait(
    current: Placement | None,
    unavailable: Iterable[Placement],
    away: Callable[[Offer], float],
    value: Money,
    waited: timedelta,
) -> WaitForPlacement | None:
    """Whether to wait for one of ``unavailable``, unavailable capacity, rather than start on ``current``.

    ``away``: hours until lost capacity returns, on average. Long absences tend to last: the expectation is never less
    than ``waited``, so a futile wait ends.
    """
    if not value or current is None or current.duration is None:
        return None
    current_cost = _cost_with_time(current, value)
    best: tuple[int, str, float, Placement] | None = None
    for placement in unavailable:
        if placement.duration is None:
            continue
        until = max(away(placement.offer), hours_of(waited))
        later_cost = _cost_with_time(placement, value) + round(value.micros * until)
        if later_cost < current_cost and (best is None or (later_cost, placement.offer.id) < best[:2]):
            best = later_cost, placement.offer.id, until, placement
    if best is None:
        return None
    later_cost, _, until, placement = best
    explanation = (
        f"spot capacity in {placement.offer.pool} is expected back in {hours(until)}: at {print_money(value)} an hour"
        f" that is worth waiting for, by {estimate(Money(current_cost - later_cost))}"
    )
    return WaitForPlacement(placement, explanation)


def better_place(
    current: Placement, alternatives: Iterable[Placement], left: float, changeover: float, value: Money
) -> Placement | None:
    """A better placement for ``left`` hours of work (on the reference machine), if the saving until the work is done,
    or that machine is lost, is several times the cost of the changeover.
    """
    if not value:
        return None
    best: tuple[float, str, Placement] | None = None
    for placement in alternatives:
        if placement.offer.pool == current.offer.pool:
            continue
        interruptions = placement.interruptions_per_hour
        useful = placement.throughput * placement.useful_fraction
        work = min(left, useful / interruptions) if interruptions > 0 else left
        saving = (_per_work(current, value) - _per_work(placement, value)) * work
        costs = (placement.rate.micros + value.micros) * changeover
        gain = saving - WORTH_MOVING * costs
        if gain > 0 and (best is None or (-gain, placement.offer.id) < best[:2]):
            best = -gain, placement.offer.id, placement
    return best[2] if best is not None else None


def _cost_with_time(placement: Placement, value: Money) -> int:
    return placement.expected_cost.micros + time_cost(placement, value).micros


def _per_work(placement: Placement, value: Money) -> float:
    """Micro-dollars per hour of work on the reference machine, including the value of time."""
    return (placement.rate.micros + value.micros) / (placement.throughput * placement.useful_fraction)


def is_start_flexible(job: Job, plan: Plan, offers: Iterable[Offer], policy_value: Money | None) -> bool:
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
        return bool(policy_value if job.value_of_time is None else job.value_of_time)
    return any(p.offer.capacity_type is not CapacityType.SPOT for p in plan.placements)
