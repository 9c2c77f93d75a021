"""The plan for a job: every offer judged, feasible ones priced and ranked, rejections counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from broker.core.job.jobs import Job
from broker.core.job.placements import Placement, Plan
from broker.core.job.reasons import Reason, Rejection, RuleObjection
from broker.core.market.offers import CapacityType, Offer
from broker.core.memory import without_collection
from broker.core.values.figures import duration_in_hours, hours
from broker.core.values.money import Money
from broker.placement.feasibility import PreparedJob, fit
from broker.placement.notes import notes, remarks
from broker.placement.pricing.conditions import Conditions
from broker.placement.pricing.estimate import Estimator, Hazard, margin
from broker.placement.pricing.run_model import Effort
from broker.placement.pricing.shares import machines, offer_part
from broker.placement.pricing.time_value import time_cost, value_of_time
from broker.placement.ranking import RankKey, rank_key

# The number of uninterruptible placements (on-demand, owned, reserved) among a plan's fallbacks, and the number of
# fallbacks if no placement is uninterruptible.
STEADY_FALLBACKS = 3
SPOT_FALLBACKS = 10

Deny = Callable[[Placement], RuleObjection | None]
"""The policies' verdict on one placement: the rule that denies it, or None."""


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges offers for one job: feasibility, cost, deadline, policies, rank. Plans and boards share it."""

    conditions: Conditions
    request: PreparedJob
    effort: Effort
    estimator: Estimator
    deadline: datetime | None
    value_of_time: Money
    deny: Deny | None
    _order: Mapping[str, int]

    @classmethod
    def of(
        cls,
        job: Job,
        *,
        now: datetime,
        submitted_at: datetime,
        conditions: Conditions,
        remaining: timedelta | None = None,
        excluded: Mapping[str, tuple[Reason, str]] | None = None,
        hazard: Hazard | None = None,
        deny: Deny | None = None,
    ) -> Judge:
        """Arguments as in `make_plan`."""
        effort = Effort.of(job, conditions, remaining)
        return cls(
            conditions=conditions,
            request=PreparedJob.of(job, conditions, now, excluded),
            effort=effort,
            estimator=Estimator(effort, now, hazard or conditions.hazard),
            deadline=job.deadline_at(submitted_at),
            value_of_time=value_of_time(job, conditions),
            deny=deny,
            _order={name: place for place, name in enumerate(conditions.capacity_order)},
        )

    def __call__(self, offer: Offer) -> tuple[RankKey, Placement] | Rejection:
        outcome = fit(offer, self.request)
        if isinstance(outcome, Rejection):
            return outcome
        machine_request = self.request.machines[outcome].request
        offer = offer_part(offer, machine_request, self.effort.nodes, self.conditions.unknown_disk)
        placement = self.estimator.placement(offer, machine_request)
        if placement is None:
            return _never_finishes(
                offer, self.estimator.hazard(offer) * machines(offer, self.effort.nodes), self.effort.interval
            )
        conditions = self.conditions
        if conditions.carbon is not None and (kg := conditions.carbon(offer)) is not None:
            placement = replace(placement, kg_co2e_per_hour=kg * placement.nodes)
        if (finding := _deadline_finding(placement, self.estimator, self.deadline)) is not None:
            return Rejection(offer.id, *finding)
        if (rejection := _policy_rejection(placement, conditions, self.deny)) is not None:
            return rejection
        if self.value_of_time:
            placement = replace(placement, surcharge=time_cost(placement, self.value_of_time))
        machine = outcome if self.request.job.ordered else 0
        return rank_key(placement, self.place(offer), machine, by_carbon=conditions.by_carbon), placement

    def place(self, offer: Offer) -> int:
        """The rank of the offer's capacity type in the policy's order."""
        return self._order.get(offer.capacity_type, len(self._order))


def make_plan(
    job: Job,
    offers: Iterable[Offer],
    *,
    now: datetime,
    submitted_at: datetime,
    conditions: Conditions | None = None,
    remaining: timedelta | None = None,
    excluded: Mapping[str, tuple[Reason, str]] | None = None,
    deny: Deny | None = None,
) -> Plan:
    """The plan for ``job`` over these offers at ``now`` (UTC).

    ``remaining``: useful work left since the last verified checkpoint, on the job's reference machine; None for all of
    it. ``excluded``: pools to skip, each with the reason. ``deny``: the policies, checked last, so an offer they deny
    is otherwise feasible.

    Ranked by `ranking.rank_key`: the order of offers does not matter. Pure. Raises InvalidInput for a job that must be
    sized first.
    """
    conditions = conditions or Conditions()
    judge = Judge.of(
        job, now=now, submitted_at=submitted_at, conditions=conditions, remaining=remaining, excluded=excluded,
        deny=deny,
    )  # fmt: skip
    ranked: list[tuple[RankKey, Placement]] = []
    rejections: list[Rejection] = []
    with without_collection():  # about ten objects per offer and no cycles: halves the time of a large plan
        for offer in offers:
            outcome = judge(offer)
            if isinstance(outcome, Rejection):
                rejections.append(outcome)
            else:
                ranked.append(outcome)
    ranked.sort(key=lambda pair: pair[0])
    placements = tuple(placement for _, placement in ranked)
    return Plan(
        made_at=now,
        placements=placements,
        rejections=tuple(rejections),
        offers_seen=len(placements) + len(rejections),
        remaining=judge.effort.remaining,
        deadline=judge.deadline,
        notes=notes(job, judge.effort, conditions, placements, judge.deadline - now if judge.deadline else None),
        remarks=remarks(job, judge.effort, placements, rejections),
    )


def fallbacks(plan: Plan) -> tuple[Placement, ...]:
    """The placements a job may move to within its hold: the ranking down to the third uninterruptible placement, or the
    last one if there are fewer; the first ten if there are none.

    The hold covers the highest rate among them, not only the current spot price. A higher rate needs a top-up.
    """
    steady = [place for place, p in enumerate(plan.placements) if p.offer.capacity_type is not CapacityType.SPOT]
    if not steady:
        return plan.placements[:SPOT_FALLBACKS]
    return plan.placements[: steady[:STEADY_FALLBACKS][-1] + 1]


def _never_finishes(offer: Offer, interruptions: float, interval: float | None) -> Rejection:
    interval_text = "" if interval is None else f", a checkpoint every {hours(interval)} (`checkpoint.every`)"
    detail = (
        f"one interruption in {hours(1 / interruptions)} expected{interval_text}"
        if interruptions
        else f"start-up and checkpoints leave no time for work{interval_text}"
    )
    return Rejection(offer.id, Reason.TOO_OFTEN_INTERRUPTED, detail)


def _deadline_finding(
    placement: Placement, estimator: Estimator, deadline: datetime | None
) -> tuple[Reason, str] | None:
    """The finding that the placement misses the deadline, less the margin of a changeover; None if it does not."""
    if deadline is None:
        return None
    now = estimator.now
    slack = margin(placement, estimator.effort)
    late = (placement.finish or now) + slack - deadline
    if late <= timedelta(0):
        return None
    if placement.finish is None:
        return Reason.MISSES_DEADLINE, f"the deadline was {duration_in_hours(late)} ago"
    return (
        Reason.MISSES_DEADLINE,
        f"{duration_in_hours(late)} late: needs {duration_in_hours(placement.finish - now)}, "
        f"{duration_in_hours(slack)} of margin",
    )


def _policy_rejection(placement: Placement, conditions: Conditions, deny: Deny | None) -> Rejection | None:
    """The rejection by a policy, or None if the policies allow the placement."""
    if placement.offer.reference and not conditions.allow_reference_prices:
        detail = f"{placement.offer.source}, {placement.offer.as_of:%Y-%m-%d}"
        return Rejection(placement.offer.id, Reason.REFERENCE_PRICE, detail)
    if deny is not None and (objection := deny(placement)) is not None:
        return Rejection(placement.offer.id, Reason.DENIED_BY_POLICY, str(objection), objection)
    return None


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """The inputs of a plan: the offers that could serve the job, and the current conditions.

    ``coming``: bought machines that a job may wait for, each with the beginning of its period (UTC).
    """

    offers: Sequence[Offer]
    conditions: Conditions
    left_out: Mapping[Reason, int]
    coming: Sequence[tuple[Offer, datetime]] = ()


MarketFor = Callable[[Job], PlanInputs]
