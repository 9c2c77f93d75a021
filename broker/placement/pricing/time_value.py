"""Cost against time, for jobs without a deadline: what an hour until the finish is worth decides. Pure.

With `value_of_time` v (USD an hour, of the job or by policy) every placement is weighed as cost + v · time to its
finish. So a faster machine may be worth its price, spot capacity that is gone may be worth waiting for, and a job may
move to a better place while it runs. Without a value of time the cheapest placement there is now is taken, and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from broker.core.job.jobs import Job
from broker.core.job.placements import Placement, Plan
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.money import Money
from broker.core.values.units import print_money
from broker.placement.formats import about, hours, hours_of

RENTED = (CapacityType.ON_DEMAND, CapacityType.SPOT)
WORTH_MOVING = 2.5
"""A voluntary move must save this many times what it costs; the saving is expected, the cost is certain."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for ``placement``, which is not to be had now. ``why``: for the job's story."""

    placement: Placement
    why: str


class Valuing(Protocol):
    """Conditions, or the defaults of the policies that they are from."""

    @property
    def value_of_time(self) -> Money | None: ...


def value_of_time(job: Job, defaults: Valuing) -> Money:
    """USD that finishing an hour earlier is worth; nothing for a job with a deadline, which says it better."""
    if job.deadline is not None:
        return Money.ZERO
    said = defaults.value_of_time if job.value_of_time is None else job.value_of_time
    return said or Money.ZERO


def worth_of_time(placement: Placement, value: Money) -> Money:
    """What the time to its finish is worth; of a useful hour, where the work is not known."""
    if placement.duration is not None:
        return Money(round(value.micros * hours_of(placement.duration)))
    return Money(round(value.micros / (placement.throughput * placement.useful_fraction)))


def worth_waiting(
    here: Placement | None,
    gone: Iterable[Placement],
    away: Callable[[Offer], float],
    value: Money,
    waited: timedelta,
) -> Wait | None:
    """Whether to wait for one of ``gone``, capacity that is not to be had now, rather than start on ``here``.

    ``away``: hours until lost capacity returns, on average. What has been away for long stays away for long: the
    expectation is never less than what was ``waited``, so a wait that is in vain comes to its end.
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
    return Wait(placement, why)


def better_place(
    here: Placement, others: Iterable[Placement], left: float, changeover: float, value: Money
) -> Placement | None:
    """Where to move with ``left`` hours of work to do (on the reference machine) and a changeover of so many hours, if
    the saving until the work is done, or the machine there is lost, is worth several moves."""
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
    """Micro-dollars for an hour of work on the reference machine, its time included."""
    return (placement.rate.micros + value.micros) / (placement.throughput * placement.useful_fraction)


def start_is_open(job: Job, plan: Plan, offers: Iterable[Offer], policys_value: Money | None) -> bool:
    """Whether a strategy has a say in where and when a job of this plan starts: what comes first would be rented, some
    of ``offers`` (all there are) may be taken away, and either there is a deadline that the work, whose size is known,
    leaves time before, or time has its price."""
    best = plan.best
    if best is None or best.duration is None or best.offer.capacity_type not in RENTED:
        return False
    if not any(offer.capacity_type is CapacityType.SPOT for offer in offers):
        return False
    if plan.deadline is None:
        return bool(policys_value if job.value_of_time is None else job.value_of_time)
    return any(p.offer.capacity_type is not CapacityType.SPOT for p in plan.placements)
