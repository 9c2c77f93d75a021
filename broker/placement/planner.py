"""The plan for a job: every offer judged, what can serve priced and ranked, every rejection counted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from broker.core.jobs import Job
from broker.core.money import Money
from broker.core.offers import CapacityType, MoneyKind, Offer
from broker.core.placements import Placement, Plan
from broker.core.reasons import Reason, Rejection
from broker.placement.conditions import Conditions
from broker.placement.course import Effort
from broker.placement.estimate import Estimator, Hazard, effective_price
from broker.placement.feasibility import Request, fit
from broker.placement.notes import notes
from broker.placement.patience import value_of_time, worth_of_time
from broker.placement.words import hours, span

# So many placements that nobody takes away (on-demand, owned, reserved) belong to the fallbacks of a plan, and so many
# in all where there are none.
STEADY_FALLBACKS = 3
SPOT_FALLBACKS = 10

Deny = Callable[[Placement], str | None]
"""The policies' word on one placement: why it is denied, or None."""

Surcharge = Callable[[Placement], Money]
"""What the policies add to a placement when ranking, in USD; the money itself stays as it is."""

_LATEST = timedelta.max
RankKey = tuple[float, int, int, int, timedelta, int, str]


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """One line of `explain`: a reason, how many offers it turned down, and the first few of them."""

    reason: Reason
    count: int
    examples: tuple[Rejection, ...]


def make_plan(
    job: Job,
    offers: Iterable[Offer],
    *,
    now: datetime,
    submitted_at: datetime,
    conditions: Conditions | None = None,
    remaining: timedelta | None = None,
    excluded: Mapping[str, str] | None = None,
    hazard: Hazard | None = None,
    surcharge: Surcharge | None = None,
    deny: Deny | None = None,
) -> Plan:
    """The plan for ``job`` over these offers at ``now`` (UTC).

    ``remaining``: useful work left since the last verified checkpoint, on the job's reference machine; None for all
    of it. ``excluded``: names of pools not to be tried, each with the reason. ``hazard``: interruptions
    per hour of one machine of an offer; the conditions' one where None. ``surcharge`` and ``deny`` are the policies'
    part; ``deny`` is asked last, so what it turns down would otherwise do. What time is worth to a job without a
    deadline (`patience`) counts as a surcharge, too.

    Ranked by emissions if the conditions say so, then by the policy's capacity order if it declares one, then by the
    job's own order if its list is ordered, then by expected cost plus surcharge (for work of unknown size: price of a
    useful hour plus surcharge), then by finish, rate and name. The same offers in any order give the same ranking.
    Pure. Raises InvalidInput for a job that must be sized first.
    """
    conditions = conditions or Conditions()
    hazard = hazard or conditions.hazard
    request = Request.of(job, conditions, now, excluded)
    effort = Effort.of(job, conditions, remaining)
    estimator = Estimator(effort, now, hazard)
    deadline = job.deadline_at(submitted_at)
    value = value_of_time(job, conditions)
    machines = [machine.request for machine in request.machines]
    order = {name: place for place, name in enumerate(conditions.capacity_order)}
    ranked: list[tuple[RankKey, Placement]] = []
    rejections: list[Rejection] = []
    seen = 0
    for offer in offers:
        seen += 1
        found = fit(offer, request)
        if isinstance(found, Rejection):
            rejections.append(found)
            continue
        placement = estimator.placement(offer, machines[found])
        if placement is None:
            rejections.append(_hopeless(offer, hazard(offer) * effort.nodes))
            continue
        if conditions.carbon is not None and (kg := conditions.carbon(offer)) is not None:
            placement = replace(placement, kg_co2e_per_hour=kg * placement.nodes)
        finding = too_late(placement, estimator, deadline) or not_allowed(placement, conditions, deny)
        if finding is not None:
            rejections.append(Rejection(offer.id, *finding))
            continue
        if surcharge is not None and (extra := surcharge(placement)):
            placement = replace(placement, surcharge=extra)
        if value:
            placement = replace(placement, surcharge=placement.surcharge + worth_of_time(placement, value))
        place = order.get(offer.capacity_type, len(order))
        emits = _emissions(placement) if conditions.by_carbon else 0.0
        ranked.append((rank_key(placement, place, found if job.ordered else 0, emits), placement))
    ranked.sort(key=lambda pair: pair[0])
    placements = tuple(placement for _, placement in ranked)
    return Plan(
        made_at=now,
        placements=placements,
        rejections=tuple(rejections),
        offers_seen=seen,
        remaining=effort.remaining,
        deadline=deadline,
        notes=notes(job, effort, conditions, placements, rejections),
    )


def rank_key(placement: Placement, place: int, machine: int, emits: float = 0.0) -> RankKey:
    """What placements are ranked by. ``place``: of the capacity type in the policy's order; ``machine``: in the job's,
    if that is ordered; ``emits``: kg CO2e, where that goes first."""
    price = placement.expected_cost if placement.duration is not None else effective_price(placement)
    return (
        emits,
        place,
        machine,
        price.micros + placement.surcharge.micros,
        _LATEST if placement.duration is None else placement.duration,
        placement.rate.micros,
        placement.offer.id,
    )


def fallbacks(plan: Plan) -> tuple[Placement, ...]:
    """The placements that a job of this plan may be moved to within its hold: the ranking down to the third one that
    nobody takes away, or to the last such one if there are fewer; the first ten where there is none."""
    steady = [place for place, p in enumerate(plan.placements) if p.offer.capacity_type is not CapacityType.SPOT]
    if not steady:
        return plan.placements[:SPOT_FALLBACKS]
    return plan.placements[: steady[:STEADY_FALLBACKS][-1] + 1]


def highest_rates(plan: Plan) -> dict[MoneyKind, Money]:
    """The dearest hourly rate (USD, all nodes) among the plan's fallbacks, for each kind of money they are paid in.

    The hold is computed from these, not from today's spot price. Something dearer needs a top-up of the hold.
    """
    rates: dict[MoneyKind, Money] = {}
    for placement in fallbacks(plan):
        rates[placement.money] = max(rates.get(placement.money, placement.rate), placement.rate)
    return rates


def explain(plan: Plan, examples: int = 3) -> tuple[ReasonCount, ...]:
    """How many offers each reason turned down, the most frequent first, with up to so many examples of each."""
    shown: dict[Reason, list[Rejection]] = {}
    for rejection in plan.rejections:
        of_reason = shown.setdefault(rejection.reason, [])
        if len(of_reason) < examples:
            of_reason.append(rejection)
    counts = Counter(rejection.reason for rejection in plan.rejections)
    listed = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(ReasonCount(reason, count, tuple(shown[reason])) for reason, count in listed)


def _hopeless(offer: Offer, interruptions: float) -> Rejection:
    detail = (
        f"one interruption in {hours(1 / interruptions)} expected"
        if interruptions
        else "starting and saving leave no time to work"
    )
    return Rejection(offer.id, Reason.TOO_OFTEN_INTERRUPTED, detail)


def _emissions(placement: Placement) -> float:
    """What the job emits there, or where its length is not known, a useful hour of it; what is not known comes last."""
    if placement.kg_co2e_per_hour is None:
        return math.inf
    if placement.kg_co2e is not None:
        return placement.kg_co2e
    return placement.kg_co2e_per_hour / (placement.throughput * placement.useful_fraction)


def too_late(placement: Placement, estimator: Estimator, deadline: datetime | None) -> tuple[Reason, str] | None:
    """Why it misses the deadline, with a changeover's margin; None where it does not."""
    if deadline is None:
        return None
    now = estimator.now
    margin = estimator.margin(placement)
    late = (placement.finish or now) + margin - deadline
    if late <= timedelta(0):
        return None
    if placement.finish is None:
        return Reason.MISSES_DEADLINE, f"the deadline was {span(late)} ago"
    return Reason.MISSES_DEADLINE, f"{span(late)} late: needs {span(placement.finish - now)}, {span(margin)} of margin"


def not_allowed(placement: Placement, conditions: Conditions, deny: Deny | None) -> tuple[Reason, str] | None:
    """Why the policies turn it down; None where they do not."""
    if placement.offer.reference and not conditions.allow_reference_prices:
        return Reason.REFERENCE_PRICE, f"{placement.offer.source}, {placement.offer.as_of:%Y-%m-%d}"
    if deny is not None and (because := deny(placement)) is not None:
        return Reason.DENIED_BY_POLICY, because
    return None
