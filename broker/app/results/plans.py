"""Plans as results."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from broker.app.jobs.preview import Preview
from broker.app.market.offer_rows import rows
from broker.app.results.errors import ErrorDocument
from broker.app.results.money import BudgetShareResult, HoldTerms, shares_of
from broker.app.results.offers import OfferResult
from broker.app.results.queue import SharedMachine
from broker.app.results.remedies import REMEDIES
from broker.app.results.values import Figure, Moment, Result, Seconds
from broker.app.results.verdicts import AlternativeResult, VerdictResult
from broker.core.job.placements import Placement
from broker.core.job.reasons import Origin, Reason
from broker.core.policy.policy import Answer
from broker.core.ports import PolicySet
from broker.core.values.money import Money
from broker.placement.planner import explain
from broker.placement.pricing.estimate import effective_price
from broker.placement.pricing.time_value import value_of_time
from broker.placement.ranking import beside_the_cost, weighed
from broker.reconciler.admission.admission import lasts


class PlannedJob(Result):
    """The planned job. ``machines``: the suitable accelerators with their counts."""

    name: str
    machines: list[str]
    nodes: int


class CostTermResult(Result):
    """One part of an expected cost in USD, with how it came about."""

    name: str
    amount: Money
    how: str


class PlacementResult(Result):
    """One placement. Costs in USD; ``expected_cost`` is for one hour if ``duration`` is null. ``terms`` add up to it;
    with ``ranking_terms``, which are weighed but not paid, they add up to ``ranked_by``."""

    rank: int
    nodes: int
    gpus: int
    rate_per_hour: Money
    expected_cost: Money
    terms: list[CostTermResult]
    duration: Seconds | None
    finish: Moment | None
    interruptions_per_hour: Figure
    useful_fraction: Figure
    throughput: Figure
    price_per_useful_hour: Money
    surcharge: Money
    ranking_terms: list[CostTermResult]
    ranked_by: Money
    kg_co2e: Figure | None
    kg_co2e_per_hour: Figure | None
    offer: OfferResult

    @classmethod
    def of(cls, placement: Placement, now: datetime, value: Money, rank: int) -> Self:
        """``value``: USD that an hour is worth."""
        (row,) = rows([placement.offer], now)
        return cls.from_parts(
            placement,
            rank=rank,
            rate_per_hour=placement.rate,
            price_per_useful_hour=effective_price(placement),
            ranking_terms=[CostTermResult.from_parts(term) for term in beside_the_cost(placement, value)],
            ranked_by=weighed(placement),
            offer=row,
        )


class RejectionExample(Result):
    """An offer that was rejected."""

    offer: str
    detail: str


class RejectionCount(Result):
    """The number of offers rejected for one reason, and what would change it."""

    reason: Reason
    count: int
    origin: Origin
    text: str
    what_would_change_it: str
    examples: list[RejectionExample]

    @classmethod
    def of(cls, seen: Preview) -> list[Self]:
        shown = {counted.reason: counted.examples for counted in explain(seen.plan)}
        return [
            cls.from_parts(
                reason,
                reason=reason,
                count=count,
                what_would_change_it=REMEDIES[reason],
                examples=[RejectionExample(offer=r.offer_id, detail=r.detail) for r in shown.get(reason, ())],
            )
            for reason, count in seen.counts.items()
        ]


class PlanVerdict(Result):
    """The policies' verdict on the plan; ``answer`` is null if the plan has no placement."""

    answer: Answer | None
    policy_version: str
    verdicts: list[VerdictResult]


class SizingResult(Result):
    """The size of a job that names a model: its memory, and the machines that hold it."""

    total_gib: Figure
    weights_gib: Figure
    gradients_gib: Figure
    optimizer_gib: Figure
    activations_gib: Figure
    loss_gib: Figure
    working_gib: Figure
    runtime_gib: Figure
    kv_cache_gib: Figure
    machines: list[str]
    nodes: int
    work: Seconds | None
    notes: list[str]


class PlanResult(Result):
    """A plan and the policies' verdict. ``exit_code``: that of a submission. ``estimate``: where
    nothing can be started as things are, what it would cost once the engines are installed. ``machines``: our own ones
    that jobs share. The first of ``placements`` is where the job would start now, which a strategy may choose."""

    job: PlannedJob
    made_at: Moment
    exit_code: int
    deadline: Moment | None
    work_left: Seconds | None
    max_duration: Seconds
    max_cost: Money | None
    offers_seen: int
    feasible: int
    over_max_cost: int
    placements: list[PlacementResult]
    estimate: list[PlacementResult]
    rejected: int
    reasons: list[RejectionCount]
    waits_for_own_machines: bool
    machines: list[SharedMachine]
    verdict: PlanVerdict
    hold: dict[str, Money]
    alternatives: list[AlternativeResult]
    hold_terms: list[HoldTerms]
    budget_shares: list[BudgetShareResult]
    hold_lasts: Seconds | None
    notes: list[str]
    sizing: SizingResult | None

    @classmethod
    def of(cls, seen: Preview, policy: PolicySet, *, limit: int | None = None) -> Self:
        """``policy``: the policies that ranked and judged the plan. ``limit``: of the placements."""
        plan, admission = seen.plan, seen.admission
        value = value_of_time(seen.job, policy.defaults)
        holds = admission if admission and seen.exit_code in (0, 6) else None
        held = holds.money if holds else {}
        sizing = seen.sizing
        return cls.from_parts(
            plan,
            job=PlannedJob(
                name=seen.job.name, machines=[r.machine for r in seen.job.resources], nodes=seen.job.num_nodes
            ),
            exit_code=seen.exit_code,
            work_left=plan.remaining,
            max_duration=seen.max_duration,
            max_cost=seen.job.max_cost,
            feasible=len(plan.placements),
            over_max_cost=seen.over_max_cost,
            placements=[
                PlacementResult.of(p, plan.made_at, value, number) for number, p in enumerate(seen.in_order[:limit], 1)
            ],
            estimate=[
                PlacementResult.of(p, plan.made_at, value, number)
                for number, p in enumerate(seen.estimate.placements[:limit] if seen.estimate else (), 1)
            ],
            rejected=sum(seen.counts.values()),
            reasons=RejectionCount.of(seen),
            waits_for_own_machines=seen.waits,
            machines=seen.machines,
            verdict=PlanVerdict(
                answer=admission.answer if admission else None,
                policy_version=policy.version,
                verdicts=[VerdictResult.of(verdict) for verdict in admission.verdicts] if admission else [],
            ),
            hold={str(kind): amount for kind, amount in held.items()},
            alternatives=[AlternativeResult.from_parts(one) for one in seen.alternatives or ()],
            hold_terms=HoldTerms.of(holds) if holds else [],
            budget_shares=shares_of(seen.shares) if holds else [],
            hold_lasts=lasts(held, plan, seen.max_duration, plan.made_at) if held else None,
            sizing=sizing,
        )


class RefusedSubmission(ErrorDocument):
    """Why a submission was refused, and the plan that shows it."""

    plan: PlanResult
